"""The suite of vision-tp-dp: which cases there are, and what a run of it needs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the launcher reads this module where there is no torch
    from skillgen.evals.kernel.context import Case, Context
    from skillgen.evals.vision_tp_dp.families import Qwen3VL
    from skillgen.evals.vision_tp_dp.surroundings import TpDpHarness

# Each kind has a module of cases with `cases(context, family)`; upstream's tests run before the ranks start.
MODULES = {
    "resolution": "cases_degrees",
    "groups": "cases_groups",
    "parity": "cases_parity",
    "agreement": "cases_agreement",
    "checkpoint": "cases_checkpoint",
    "conversion": "cases_conversion",
    "cost": "cases_cost",
    "training": "cases_training",
}
KINDS = (*MODULES, "upstream-tests")
MUTATIONS = (
    "columns-rows",
    "sum-not-slice",
    "no-replica-sum",
    "unpack-before-gather",
    "no-broadcast",
    "deepstack-partial",
    "no-replica-ids",
    "norm-twice",
    "nan-padding",
    "no-agree",
    "text-conversion",
    "tp-default",
)
CONTROLS: tuple[str, ...] = ()  # refused by scan; forced all the same, parity has to fail
FAMILIES = "skillgen.evals.vision_tp_dp.families"
NEEDED = {
    "torch": "torch",
    "transformers": "'transformers<=5.12.1'",
    "einops": "einops",
    "megatron.core": "",  # from --mcore
}
SWITCH = ""  # no environment variable turns the patch off: the weights have another shape


def harness(spec: dict[str, Any]) -> TpDpHarness:
    """This process's view of the target."""
    from skillgen.evals.vision_tp_dp.surroundings import TpDpHarness

    return TpDpHarness(spec["target"], spec["mcore"])


def require(context: Context, family: Qwen3VL) -> None:
    """Raise Skip where this machine cannot judge the family at all."""
    from skillgen.evals.vision_tp_dp import cases_parity

    context.harness.parts()
    cases_parity.require(context, family)


def cases(context: Context, family: Qwen3VL, kinds: tuple[str, ...]) -> Iterator[Case]:
    """The cases of one family, in the order of KINDS; with the option `only`, those named there: "kind: name"."""
    only = context.options.get("only")
    for kind in kinds:
        if kind in MODULES:
            found = importlib.import_module(f"{__package__}.{MODULES[kind]}").cases(context, family)
            yield from (case for case in found if only is None or f"{kind}: {case.name}" in only)


def faults() -> list[str]:
    """What `mutate` can break, which MUTATIONS has to name."""
    from skillgen.evals.vision_tp_dp import mutations

    return mutations.names()


def mutate(name: str, context: Context) -> None:
    """Break the patched code on purpose."""
    from skillgen.evals.vision_tp_dp import mutations

    mutations.apply(name, context)
