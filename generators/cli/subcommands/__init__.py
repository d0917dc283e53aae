"""Commands beside those that patch: every module here is one, and its file name is its name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import argparse

    from skillgen.cli.output import Result

Add = Callable[..., "argparse.ArgumentParser"]  # name, help, names of positional arguments


class Subcommand(Protocol):
    """What a command's module offers. It imports nothing heavy before it runs: `--help` loads them all."""

    def register(self, command: Add) -> None:
        """Add the command's parser."""

    def run(self, args: argparse.Namespace) -> Result:
        """Do what was asked."""


def names() -> list[str]:
    """The names of the commands, without importing them."""
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__))


def load(name: str) -> Subcommand:
    """The module of one command."""
    module: Subcommand = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return module
