"""Which TP x DP degrees suit a vision tower: every mode's cost, the best that fits, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from skillgen.techniques.vision_tp_dp.cost_model import Cost, Job, Machine, Tower, cost, tower_bytes

TOLERANCE = 0.01  # relative, of what a run measures: index tensors and the placeholder of an idle rank are left out


@dataclass(frozen=True)
class Advice:
    """Modes in order: the best first; those that do not fit come last, the one that keeps least first."""

    fitting: tuple[Cost, ...]
    too_large: tuple[Cost, ...]
    released: Cost | None  # as the release has it, where its TP degree divides the tower
    reason: str


def degrees(tower: Tower, text_tp: int) -> list[int]:
    """Vision TP degrees that training allows: they divide the text model's, and the tower."""
    return [tp for tp in range(1, min(text_tp, tower.heads) + 1) if text_tp % tp == 0 and not tower.splits(tp)]


def recommend(
    tower: Tower, job: Job, *, memory: float = float("inf"), machine: Machine | None = None, only: int | None = None
) -> Advice:
    """The fastest mode within `memory` bytes for the tower on a rank; of equally fast ones that which keeps least."""
    tps = degrees(tower, job.text_tp) if only is None else [only]
    costs = sorted((cost(tower, job, tp, machine) for tp in tps), key=lambda mode: (mode.seconds, mode.memory_bytes))
    released = None if tower.splits(job.text_tp) else cost(tower, job, job.text_tp, machine, shared=False)
    fitting = tuple(mode for mode in costs if mode.memory_bytes <= memory)
    large = tuple(sorted((mode for mode in costs if mode.memory_bytes > memory), key=lambda mode: mode.memory_bytes))
    return Advice(fitting, large, released, _reason(fitting, large))


def name(mode: Cost) -> str:
    """How a mode is called."""
    return f"TP {mode.vision_tp} x DP {mode.vision_dp}"


def _reason(fitting: tuple[Cost, ...], large: tuple[Cost, ...]) -> str:
    if not fitting:
        return f"no mode fits: {name(large[0])} keeps least, {large[0].memory_bytes / 1e9:.1f} GB"
    best, *others = fitting
    told = f"{name(best)} takes {1e3 * best.seconds:.2f} ms a microbatch"
    if others:
        told += f", {name(others[0])} {1e3 * others[0].seconds:.2f} ms: {_difference(best, others[0])}"
    faster = [mode for mode in large if mode.seconds < best.seconds]
    if faster:
        first = min(faster, key=lambda mode: mode.seconds)
        told += f"; {name(first)} would take {1e3 * first.seconds:.2f} ms, and keeps {first.memory_bytes / 1e9:.1f} GB"
    elif not others:
        told += ", the only mode that fits" if large else ", the only mode"
    return told


def _difference(best: Cost, other: Cost) -> str:
    """Where the runner-up loses most."""
    inside = "all-reduces inside the tower" if other.vision_tp > 1 else "features"
    longer = {
        "its busiest rank computes {} ms longer": other.compute_seconds - best.compute_seconds,
        f"it exchanges {inside} {{}} ms longer": other.exchange_seconds - best.exchange_seconds,
        "it sums the gradients of its copies {} ms longer": other.step_seconds - best.step_seconds,
    }
    words = max(longer, key=lambda words: longer[words])
    return words.format(f"{1e3 * longer[words]:.2f}") if longer[words] > 0 else "as fast, and it keeps more"


def predicted(tower: Tower, job: Job, vision_tp: int) -> dict[str, int]:
    """What a run of one mode measures on its fullest rank, by name; of collectives the sizes of their tensors."""
    mode = cost(tower, job, vision_tp)
    forward, backward = tower_bytes(tower, job, mode.patches, vision_tp)
    return {
        "patches": mode.patches,
        "weight bytes": mode.weight_bytes,
        "activation bytes": mode.activation_bytes,
        "tower forward bytes": forward,
        "tower backward bytes": backward,
        "gathered bytes": mode.gathered_bytes,
        "exchanged bytes": mode.gathered_bytes * job.cp // mode.vision_dp if job.cp > 1 else 0,
        "replica gradient bytes": mode.gradient_bytes if vision_tp < job.text_tp else 0,
    }


def deviations(
    tower: Tower, job: Job, vision_tp: int, measured: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Checks of a case: how far `measured`, named as in `predicted`, is from the model, and how far it may be."""
    expected = predicted(tower, job, vision_tp)
    return {
        f"{what} beside the cost model": (abs(value - expected[what]) / max(expected[what], 1), TOLERANCE)
        for what, value in measured.items()
    }
