"""The techniques of the pack: every folder of `skillgen.techniques` but `shared` is one, and its name is theirs."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from typing import TYPE_CHECKING, Any, Protocol

from skillgen.kernel.errors import USAGE, SkillgenError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from skillgen.kernel.model import FamilyPlan, Row
    from skillgen.kernel.option import Option
    from skillgen.kernel.source import Source
    from skillgen.kernel.target import Target
    from skillgen.techniques.shared.hooks import Advised, Check


class About(Protocol):
    """What a technique's package says of it; importing it costs next to nothing."""

    NAME: str
    SUMMARY: str
    PRODUCTS: tuple[str, ...]  # of which it patches trees
    OPTIONS: Mapping[str, Option]  # of `plan` and `apply`


class Technique(Protocol):
    """What a technique's module offers."""

    def rows(self, source: Source) -> list[Row]:
        """The verdict on every site of a target of one of `PRODUCTS`."""

    def plan(self, source: Source, family: str, options: Mapping[str, str]) -> FamilyPlan:
        """The edits that patch one family."""


class Doctor(Protocol):
    """A technique's module `doctor`."""

    def checks(self, target: Target | None, families: Sequence[str]) -> Iterable[Check]:
        """What it has to say of this environment, and of the families of the target that carry its patch."""


class Adviser(Protocol):
    """A technique's module `advise`. It imports nothing heavy before it runs: `--help` loads it."""

    HELP: str

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add its options to those of the command."""

    def run(self, args: argparse.Namespace) -> Advised:
        """What suits."""


def names() -> list[str]:
    """The names of all techniques, without importing them."""
    import skillgen.techniques as package

    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(package.__path__) if m.name != "shared")


def about(name: str) -> About:
    """What a technique says of itself."""
    package: About = _import(name)
    return package


def load(name: str) -> Technique:
    """The module of one technique."""
    module: Technique = _import(name, "technique")
    return module


def hook(name: str, what: str) -> Any:
    """A module that a technique may have, as `doctor` or `advise`; None where it has none."""
    package = about(name)
    there = importlib.util.find_spec(f"{package.__name__}.{what}")  # type: ignore[attr-defined]
    return _import(name, what) if there else None


def _import(name: str, *module: str) -> Any:
    known = names()
    if name not in known:
        raise SkillgenError(
            "unknown-technique",
            f"no technique is called {name!r}",
            hint=f"one of: {', '.join(known)}",
            exit_code=USAGE,
        )
    return importlib.import_module(".".join(["skillgen.techniques", name.replace("-", "_"), *module]))
