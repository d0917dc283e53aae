"""The reach probe, which says whether CP is on, and what one layer sends and computes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from skillgen.evals.hierarchical_cp import gpt
from skillgen.evals.hierarchical_cp.cases_numerics import splits
from skillgen.evals.hierarchical_cp.families import Part
from skillgen.evals.hierarchical_cp.paths import Paths, paths_of
from skillgen.evals.kernel import tables, tolerances
from skillgen.evals.kernel.attention import Traffic
from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.kernel.tables import Shape

BATCH, HEADS, KV_HEADS, DIM = 1, 8, 4, 16
CHUNK, TILE = 2, 64  # positions of a chunk: for the reference, and for kernels that want whole tiles
VIEWS = ("on", "inner only", "outer only", "off")
DISORDER = "in disorder"


def cases(context: Context, part: Part) -> Iterator[Case]:
    """Each split on each path; where the stand-in computes, also that each kind of failure is told by its name."""
    paths = paths_of(context)
    for shape in splits(context.world):
        for name in paths.names:
            yield Case("probe", f"{shape}, {name}", partial(_reach, context, paths, shape, name))
    first = splits(context.world)[0]
    for view in VIEWS[1:]:
        yield Case("probe", f"{first}, control: {view}", partial(_told, context, paths, first, view))


def costs(context: Context, part: Part) -> Iterator[Case]:
    """Counts of one layer forward, on and off."""
    paths = paths_of(context)
    for shape in splits(context.world):
        for name in paths.names:
            yield Case("cost", f"{shape}, {name}", partial(_cost, context, paths, shape, name))


def agreed(context: Context, said: str) -> str:
    """The verdict of all ranks: one for the group, or disorder where they differ."""
    votes = torch.zeros(len(VIEWS) + 1, device=context.device)
    votes[(*VIEWS, DISORDER).index(said)] = 1
    dist.all_reduce(votes)
    return said if int(votes.count_nonzero()) == 1 else DISORDER


def verdict(found: list[tuple[float, float]], rank: int, ranks: list[int], inner: int, tolerance: float) -> str:
    """Which positions reached this rank's queries, from what uniform attention made of v."""
    chunk, size = len(found) // 2, len(ranks)
    own = tables.positions(ranks.index(rank), size, chunk)
    for name, visible in tables.views(rank, ranks, inner, chunk).items():
        expected = tables.expected_probe(own, visible, 2 * size * chunk)
        if (
            max(abs(a - b) for pair in zip(found, expected, strict=True) for a, b in zip(*pair, strict=True))
            <= tolerance
        ):
            return name
    return DISORDER


def probe(context: Context, paths: Paths, shape: Shape, layer: Any) -> tuple[list[tuple[float, float]], float]:
    """Output of q = k = 0, v = (position, its square / length), and its distance from half the position."""
    from megatron.core.transformer.enums import AttnMaskType

    own = tables.positions(_peers(context, shape).index(context.rank), shape.cp, _chunk(paths))
    options: dict[str, Any] = {"dtype": _dtype(paths), "device": context.device}
    query = torch.zeros(len(own), BATCH, HEADS // shape.tp, DIM, **options)
    value = torch.zeros(len(own), BATCH, KV_HEADS // shape.tp, DIM, **options)
    key = value.clone()
    where = torch.tensor(own, dtype=torch.float64, device=context.device)[:, None, None]
    value[..., 0], value[..., 1] = where, where.square() / _length(paths, shape)
    with torch.no_grad():
        out: Tensor = layer(query, key, value, None, AttnMaskType.causal)
    first, second = out.flatten(1)[:, :2].double().unbind(1)
    gap = max(abs(a - position / 2) for a, position in zip(first.tolist(), own, strict=True))
    return list(zip(first.tolist(), second.tolist(), strict=True)), gap


def _layer(context: Context, paths: Paths, shape: Shape, name: str) -> Any:
    """A layer's attention as the target's model has it, with its groups."""
    made = paths.make(name, shape)
    explicit = paths.is_bridge or name != "MPU"
    options: dict[str, Any] = {"hidden_size": HEADS * DIM, "params_dtype": _dtype(paths), "bf16": not paths.exact}
    model = gpt.build(paths, shape, made, collection=explicit, **options)
    return gpt.attentions(model)[0]


def _reach(context: Context, paths: Paths, shape: Shape, name: str) -> Result:
    try:
        layer = _layer(context, paths, shape, name)
        found, gap = probe(context, paths, shape, layer)
        tolerance = _tolerance(paths, shape)
        said = agreed(context, verdict(found, context.rank, _peers(context, shape), shape.inner, tolerance))
        computed = "our reference, in the place of Transformer Engine" if paths.exact else "Transformer Engine"
        return Result(
            checks={f"CP is {said}; distance from half the position": (gap, tolerance)},
            numbers={"CP": said, "computed by": computed},
        )
    finally:
        paths.destroy()


def _told(context: Context, paths: Paths, shape: Shape, view: str) -> Result:
    """A layer with a level taken away: the probe names what is left."""
    if not paths.exact:
        raise Skip("levels are taken away on the stand-in only")
    try:
        layer = _layer(context, paths, shape, "MPU")
        if isinstance(layer.cp_group, list):
            inner, outer = layer.cp_group
            left, kind = {"inner only": (inner, "a2a"), "outer only": (outer, "p2p"), "off": (None, "p2p")}[view]
            layer.set_context_parallel_group(left, None, None, kind)
        found, gap = probe(context, paths, shape, layer)
        tolerance = _tolerance(paths, shape)
        said = agreed(context, verdict(found, context.rank, _peers(context, shape), shape.inner, tolerance))
        # the last chunk of the last rank sees all that is before it, whatever is off
        blind = not context.any(gap > tolerance)
        wrong = {f"it was called {said}": said != view, "the output is half the position": blind}
        return Result(checks={what: (float(value), 0.0) for what, value in wrong.items()})
    finally:
        paths.destroy()


def _cost(context: Context, paths: Paths, shape: Shape, name: str) -> Result:
    """Against the formulas; the score entries of all ranks make up the causal matrix exactly once."""
    if not paths.exact:
        raise Skip("counted on the reference only")
    try:
        layer = _layer(context, paths, shape, name)
        probe(context, paths, shape, layer)
        on: Traffic = layer.groups.traffic
        layer.set_context_parallel_group(None, None, None, layer.cp_comm_type)
        probe(context, paths, shape, layer)
        off: Traffic = layer.groups.traffic
    finally:
        paths.destroy()
    seq, heads = _length(paths, shape), HEADS // shape.tp
    wanted = tables.cost(shape, seq, BATCH, heads, KV_HEADS // shape.tp, DIM, 8)
    entries = tables.causal_entries(seq, heads)
    checks = {
        "all-to-alls": (abs(on.all_to_all - wanted.all_to_all), 0),
        "exchanges": (abs(on.exchanges - wanted.exchanges), 0),
        "bytes inside": (abs(on.inner_bytes - wanted.inner_bytes), 0),
        "bytes outside": (abs(on.outer_bytes - wanted.outer_bytes), 0),
        "score entries of all ranks": (abs(_sum(context, shape, on.score_entries) - entries), 0),
        "collectives when off": (off.all_to_all + off.exchanges, 0),
        "score entries when off, of those when on": (off.score_entries / on.score_entries, 2 / shape.cp),
    }
    numbers: dict[str, Any] = {
        f"{key}, {arm}": value for arm, t in (("on", on), ("off", off)) for key, value in vars(t).items()
    }
    return Result(
        checks={key: (float(value), float(limit)) for key, (value, limit) in checks.items()}, numbers=numbers
    )


def _sum(context: Context, shape: Shape, value: int) -> int:
    """Over one CP group; all of them compute the same."""
    total = torch.tensor([value], device=context.device)
    dist.all_reduce(total)
    return int(total) // (context.world // shape.cp)


def _peers(context: Context, shape: Shape) -> list[int]:
    return next(ranks for ranks in tables.cp_ranks(shape) if context.rank in ranks)


def _dtype(paths: Paths) -> torch.dtype:
    return torch.float64 if paths.exact else torch.bfloat16


def _chunk(paths: Paths) -> int:
    return CHUNK if paths.exact else TILE


def _length(paths: Paths, shape: Shape) -> int:
    return 2 * shape.cp * _chunk(paths)


def _tolerance(paths: Paths, shape: Shape) -> float:
    """Relative to the sequence length, the largest position."""
    return tolerances.of(_dtype(paths)) * _length(paths, shape)
