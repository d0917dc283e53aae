"""The suite of vision-frame-sharding: which cases there are, the negative control, and what a run of it needs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the launcher reads this module where there is no torch
    from skillgen.evals.kernel.automodel import AutomodelHarness
    from skillgen.evals.kernel.context import Case, Context
    from skillgen.evals.vision_frame_sharding.towers import Tower

# Each kind has a module of cases with `cases(context, family)`; upstream's tests run before the ranks start.
KINDS = ("recipe", "parity", "trainable", "agreement", "compare", "upstream-tests")
MUTATIONS = (
    "frame-order",
    "cut-entry",
    "sum-dropped",
    "threshold-per-rank",
    "swap",
    "swap-gradient",
    "placeholder-leak",
    "no-agree",
    "digest",
    "group-not-restored",
    "distillation-forgotten",
    "embeddings-detached",
)
MODULES = {
    "recipe": "cases_recipe",
    "parity": "cases_parity",
    "trainable": "cases_trainable",
    "agreement": "cases_agreement",
    "compare": "cases_compare",
}
CONTROLS: tuple[str, ...] = ()  # refused by scan; forced all the same, parity has to fail
FAMILIES = "skillgen.evals.vision_frame_sharding.families"
NEEDED = {"torch": "torch", "transformers": "transformers"}
SWITCH = ""  # no environment variable turns the patch off


def harness(spec: dict[str, Any]) -> AutomodelHarness:
    """This process's view of the target."""
    from skillgen.evals.kernel.automodel import AutomodelHarness

    return AutomodelHarness(spec["target"])


def cases(context: Context, family: Tower, kinds: tuple[str, ...]) -> Iterator[Case]:
    """The cases of one family, in the order of KINDS."""
    for kind in kinds:
        if kind in MODULES:
            yield from importlib.import_module(f"{__package__}.{MODULES[kind]}").cases(context, family)


def require(context: Context, family: Tower) -> None:
    """Raise Skip where this machine cannot judge the family at all."""
    context.harness.glue()


def faults() -> list[str]:
    """What `mutate` can break, which MUTATIONS has to name."""
    from skillgen.evals.vision_frame_sharding.mutations import names

    return names()


def mutate(name: str, context: Context) -> None:
    """Break the patched code on purpose."""
    from skillgen.evals.vision_frame_sharding.mutations import apply

    apply(name, context)
