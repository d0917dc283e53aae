"""Options of `plan` and `apply` that techniques bring: the command line itself knows none."""

from __future__ import annotations

import argparse

from skillgen.engine import registry


def names() -> list[str]:
    """The options of all techniques."""
    return list(dict.fromkeys(option for name in registry.names() for option in registry.about(name).OPTIONS))


def add(parser: argparse.ArgumentParser) -> None:
    """Every option, with the techniques that it is for; those of one name share its values."""
    for option in names():
        values: list[object] = []
        told = []
        for name in registry.names():
            if one := registry.about(name).OPTIONS.get(option):
                values += [value for value in one.values if value not in values]
                told.append(f"{name}: {one.help}")
        switch = {"action": argparse.BooleanOptionalAction, "default": None}
        how = switch if set(values) == {True, False} else {"choices": values}
        parser.add_argument(f"--{option}", help=f"{'; '.join(told)}; without it an earlier choice stays", **how)
