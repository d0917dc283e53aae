"""The suite of blockdiag-gqa: that the dense fallback crashes without the patch, and what it computes with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the launcher reads this module where there is no torch
    from skillgen.evals.blockdiag_gqa.attention import Attention
    from skillgen.evals.kernel.automodel import AutomodelHarness
    from skillgen.evals.kernel.context import Case, Context

KINDS = ("crash", "parity")
MUTATIONS = (
    "told-nothing",
    "other-order",
    "first-copy-learns",
)
CONTROLS: tuple[str, ...] = ()
FAMILIES = "skillgen.evals.blockdiag_gqa.attention"
NEEDED = {"torch": "torch", "transformers": "transformers"}
SWITCH = "BLOCKDIAG_GQA"  # the patch has no switch; every suite names one


def harness(spec: dict[str, Any]) -> AutomodelHarness:
    """This process's view of the target."""
    from skillgen.evals.kernel.automodel import AutomodelHarness

    return AutomodelHarness(spec["target"])


def cases(context: Context, family: Attention, kinds: tuple[str, ...]) -> Iterator[Case]:
    """The cases of one family, in the order of KINDS."""
    from skillgen.evals.blockdiag_gqa import cases as cases_attention

    for kind in kinds:
        if kind in KINDS:
            yield from getattr(cases_attention, kind)(context, family)


def require(context: Context, family: Attention) -> None:
    """Raise Skip where this machine cannot judge the family: with the varlen kernels there is no fallback in bf16."""
    family.require()


def faults() -> list[str]:
    """What `mutate` can break, which MUTATIONS has to name."""
    from skillgen.evals.blockdiag_gqa import cases as cases_attention

    return list(cases_attention.FAULTS)


def mutate(name: str, context: Context) -> None:
    """Break the attention on purpose."""
    from skillgen.evals.blockdiag_gqa import cases as cases_attention

    cases_attention.mutate(name, context)
