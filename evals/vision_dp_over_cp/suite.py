"""The suite of vision-dp-over-cp: which cases there are, the negative control, and what a run of it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the launcher reads this module where there is no torch
    from skillgen.evals.kernel.context import Case, Context, Result
    from skillgen.evals.kernel.families import Family
    from skillgen.evals.kernel.harness import Harness

KINDS = ("parity", "agreement", "cost", "training", "upstream-tests")
MUTATIONS = (
    "no-reduce",
    "order",
    "placeholder-leak",
    "cut-tubelet",
    "no-agree",
    "swap",
    "swap-gradient",
    "count",
    "frozen-reduce",
    "local-backward",
    "upcast",
    "digest",
    "never-off",
    "gather-before-projection",
)
BASELINES = ("count", "contiguous")  # methods of splitting whose cost may be compared
CONTROLS = ("minimax_m3",)  # refused by scan; forced all the same, parity has to fail
FAMILIES = "skillgen.evals.vision_dp_over_cp.families"
NEEDED = {"torch": "torch", "transformers": "'transformers<=5.12.1'", "megatron.core": ""}  # "": from --mcore
SWITCH = ""  # no environment variable turns the patch off


def harness(spec: dict[str, Any]) -> Harness:
    """This process's view of the target."""
    from skillgen.evals.kernel.harness import Harness

    return Harness(spec["target"], spec["mcore"])


def faults() -> list[str]:
    """What `mutate` can break, which MUTATIONS has to name."""
    from skillgen.evals.kernel import mutations

    return mutations.names()


def mutate(name: str, context: Context) -> None:
    """Break the runtime on purpose."""
    from skillgen.evals.kernel import mutations

    mutations.apply(name, context)


def cases(context: Context, family: Family, kinds: tuple[str, ...]) -> Iterator[Case]:
    """The cases of one family, in the order of KINDS."""
    from skillgen.evals.vision_dp_over_cp import cases_agreement, cases_cost, cases_mcore, cases_parity, cases_training

    if family.name in CONTROLS:
        yield from control(context, family)
        return
    if family.splitter == "mcore":
        yield from (case for case in cases_mcore.cases(context, family) if case.kind in kinds)
        return
    suites = {
        "parity": cases_parity.cases,
        "agreement": cases_agreement.cases,
        "cost": cases_cost.cases,
        "training": cases_training.cases,
    }
    for kind in kinds:
        if kind in suites and (kind == "parity" or family.variant == family.variants[0]):
            yield from suites[kind](context, family)


def require(context: Context, family: Family) -> None:
    """Raise Skip where this machine cannot judge the family at all."""
    from skillgen.evals.vision_dp_over_cp import cases_parity

    cases_parity.require_replicated(context, family)


def control(context: Context, family: Family) -> Iterator[Case]:
    """A family whose images see one another: the gate must reject it, and needs two unequal images to do so."""
    from skillgen.evals.kernel.context import Case

    cp = context.cp_sizes()[0]
    for count in (1, 2, 3):
        name = "1 image must pass" if count == 1 else f"{count} images must fail"
        yield Case("control", f"CP {cp}, forced, {name}", lambda count=count: _forced(context, family, cp, count))  # type: ignore[misc]


def _forced(context: Context, family: Family, cp: int, count: int) -> Result:
    """One image is encoded alike with and without sharding; from two on, the parity gate has to reject the family."""
    from skillgen.evals.kernel.context import Result
    from skillgen.evals.kernel.families import Item
    from skillgen.evals.vision_dp_over_cp import cases_parity

    items = [Item(2, 3), Item(4, 2), Item(3, 3)][:count]
    found = cases_parity.parity(context, family, cp, items).checks
    rejected = any(not value <= limit for value, limit in found.values())
    expected = count > 1
    return Result(
        checks={"the parity gate decided otherwise": (float(context.any(rejected) != expected), 0)},
        numbers={name: value for name, (value, _) in found.items()},
    )
