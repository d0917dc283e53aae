"""Find the commands beside those that patch: every module of `subcommands` is one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
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
    folder = Path(__file__).with_name("subcommands")
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules([str(folder)]))


def load(name: str) -> Subcommand:
    """The module of one command."""
    module: Subcommand = importlib.import_module(f"skillgen.cli.subcommands.{name.replace('-', '_')}")
    return module
