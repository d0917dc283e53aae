"""The parts of the cure, as the eval knows them: each judges with some of the suite's kinds."""

from __future__ import annotations

from typing import ClassVar

from skillgen.evals.kernel.harness import Harness, Skip

KINDS = {
    "groups": ("groups", "wiring", "numerics", "probe", "cost"),
    "attention": ("groups", "wiring", "numerics", "probe", "cost"),
    "checks": ("checks",),
    "recipe": ("recipe",),
}


class Part:
    """One part in one target."""

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    variants: ClassVar[tuple[str, ...]] = ("",)

    def __init__(self, harness: Harness, variant: str = "") -> None:
        self.harness = harness


def load(name: str) -> type[Part]:
    """The class of a part."""
    if name not in KINDS:
        raise Skip(f"no case judges {name}")
    return type(name.title(), (Part,), {"name": name, "kinds": KINDS[name]})
