"""Options of `plan` and `apply` that techniques bring: the command line itself knows none."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from skillgen.engine import registry

if TYPE_CHECKING:
    from skillgen.kernel.option import Option


def names() -> list[str]:
    """The options of all techniques."""
    return list(dict.fromkeys(option for options in _offered().values() for option in options))


def add(parser: argparse.ArgumentParser) -> None:
    """Every option, with the techniques that it is for; those of one name share its values."""
    offered = _offered()
    for option in dict.fromkeys(option for options in offered.values() for option in options):
        having = {name: options[option] for name, options in offered.items() if option in options}
        values = list(dict.fromkeys(value for one in having.values() for value in one.values))
        told = "; ".join(f"{name}: {one.help}" for name, one in having.items())
        switch = {"action": argparse.BooleanOptionalAction, "default": None}
        how = switch if set(values) == {True, False} else {"choices": values}
        parser.add_argument(f"--{option}", help=f"{told}; without it an earlier choice stays", **how)


def _offered() -> dict[str, Mapping[str, Option]]:
    return {name: registry.about(name).OPTIONS for name in registry.names()}
