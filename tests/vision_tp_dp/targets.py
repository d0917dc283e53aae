"""Copies of releases in SKILLGEN_RELEASES, checkouts of a clone in SKILLGEN_BRIDGE_REPO, and commands on them."""

from __future__ import annotations

from pathlib import Path

from skillgen.cli.parser import main
from skillgen.engine.scan import scan
from skillgen.kernel.model import Row
from skillgen.kernel.target import discover
from skillgen.techniques.vision_tp_dp import sites as tp_dp_sites
from tests import checkouts
from tests.releases import copy as release
from tests.releases import original

__all__ = ["BRIDGE", "TECHNIQUE", "checkout", "original", "release", "row", "run", "verdict"]

TECHNIQUE = "vision-tp-dp"
BRIDGE = "megatron/bridge"
PAGES = ("docs/models", "docs/fern/versions/nightly/pages/models")
CHECKOUT = ("src", "tests", *PAGES, "docs/training", "skills", "examples", "pyproject.toml", "ruff.toml")


def checkout(revision: str, root: Path) -> Path:
    """A git checkout of the parts of a revision that a patch may touch."""
    return checkouts.checkout("SKILLGEN_BRIDGE_REPO", revision, root, CHECKOUT)


def row(path: Path) -> Row:
    """The one verdict."""
    (found,) = scan(discover(path), technique=tp_dp_sites.TECHNIQUE)
    return found


def verdict(path: Path) -> str:
    return f"{row(path).outcome.value} {row(path).reason}"


def run(command: str, path: Path, *options: str, technique: str = TECHNIQUE) -> int:
    return main([command, *([] if command == "status" else [technique]), str(path), *options])
