"""The suite of hierarchical-cp: which cases there are, and what a run of it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the launcher reads this module where there is no torch
    from skillgen.evals.hierarchical_cp.families import Part
    from skillgen.evals.kernel.context import Case, Context
    from skillgen.evals.kernel.harness import Harness

KINDS = ("groups", "wiring", "checks", "recipe", "numerics", "probe", "cost")
MUTATIONS = (
    "groups-swapped",
    "global-unset",
    "hcp-unread",
    "validation-dropped",
    "no-reorder",
)
PROBE = {"megatron-bridge": "groups", "megatron-core": "attention"}  # whose probe needs no patch
CONTROLS: tuple[str, ...] = ()
FAMILIES = "skillgen.evals.hierarchical_cp.families"
NEEDED = {"torch": "torch", "einops": "einops", "packaging": "packaging", "megatron.core": ""}  # "": from --mcore
SWITCH = "NVTE_APPLY_QK_LAYER_SCALING"  # changes what Transformer Engine's attention is asked for


def harness(spec: dict[str, Any]) -> Harness:
    """This process's view of the target: a Megatron-Bridge, or a megatron-core alone."""
    from skillgen.evals.hierarchical_cp.paths import BridgeHarness, CoreHarness

    root = Path(spec["target"])
    bridge = any((folder / "megatron" / "bridge").is_dir() for folder in (root / "src", root))
    return BridgeHarness(spec["target"], spec["mcore"]) if bridge else CoreHarness(spec["target"])


def faults() -> list[str]:
    """What `mutate` can break, which MUTATIONS has to name."""
    from skillgen.evals.hierarchical_cp import mutations

    return mutations.names()


def mutate(name: str, context: Context) -> None:
    """Break the target, or the reference, on purpose."""
    from skillgen.evals.hierarchical_cp import mutations

    mutations.apply(name, context)


def require(context: Context, part: Part) -> None:
    """Raise Skip where these ranks cannot judge the part at all."""
    from skillgen.evals.kernel import tables
    from skillgen.evals.kernel.harness import Skip

    if "groups" in part.kinds and not [*tables.shapes(context.world)]:
        raise Skip(f"{context.world} ranks hold no CP of 2 x 2: use --nproc 4 or 8")


def cases(context: Context, part: Part, kinds: tuple[str, ...]) -> Iterator[Case]:
    """The cases of one part, in the order of KINDS."""
    from skillgen.evals.hierarchical_cp import cases_checks, cases_groups, cases_numerics, cases_probe, cases_wiring

    suites = {
        "groups": cases_groups.cases,
        "wiring": cases_wiring.cases,
        "checks": cases_checks.cases,
        "recipe": cases_checks.recipes,
        "numerics": cases_numerics.cases,
        "probe": cases_probe.cases,
        "cost": cases_probe.costs,
    }
    for kind in kinds:
        if kind in part.kinds:
            yield from suites[kind](context, part)


def probed(rows: list[dict[str, Any]]) -> list[str]:
    """What the probe said of each path, a line each."""
    lines = []
    for row in rows:
        if row["kind"] == "probe" and "control" not in row["name"]:
            numbers = {name: values[0] for name, values in row.get("numbers", {}).items()}
            said = f"CP is {numbers['CP']}, computed by {numbers['computed by']}" if numbers else row["reason"]
            lines.append(f"{row['name']}: {said}")
    return lines
