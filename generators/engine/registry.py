"""The techniques of the pack: every folder of `skillgen.techniques` but `shared` is one, and its name is theirs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.kernel.model import FamilyPlan, Row

if TYPE_CHECKING:
    from skillgen.kernel.target import Target


class Technique(Protocol):
    """What a technique's module offers."""

    NAME: str
    SUMMARY: str
    OPTIONS: Mapping[str, tuple[object, ...]]  # options of `plan` and `apply`, and the values that they take

    def rows(self, target: Target) -> list[Row]:
        """The verdict on every site of `target`."""

    def plan(self, target: Target, family: str, options: Mapping[str, str]) -> FamilyPlan:
        """The edits that patch one family."""


def names() -> list[str]:
    """The names of all techniques, without importing them."""
    import skillgen.techniques as package

    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(package.__path__) if m.name != "shared")


def load(name: str) -> Technique:
    """The module of one technique."""
    known = names()
    if name not in known:
        raise SkillgenError(
            "unknown-technique",
            f"no technique is called {name!r}",
            hint=f"one of: {', '.join(known)}",
            exit_code=USAGE,
        )
    module: Technique = importlib.import_module(f"skillgen.techniques.{name.replace('-', '_')}.technique")
    return module
