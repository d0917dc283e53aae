"""Copies of releases in SKILLGEN_RELEASES, checkouts of a clone in SKILLGEN_BRIDGE_REPO, and commands on them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from skillgen.cli.parser import main
from skillgen.kernel.model import Row
from skillgen.kernel.target import discover
from skillgen.techniques.vision_tp_dp import sites as tp_dp_sites
from tests import checkouts

TECHNIQUE = "vision-tp-dp"
BRIDGE = "megatron/bridge"
PAGES = ("docs/models", "docs/fern/versions/nightly/pages/models")
CHECKOUT = ("src", "tests", *PAGES, "docs/training", "skills", "examples", "pyproject.toml", "ruff.toml")


def original(name: str) -> Path:
    """An unpacked release; nothing may be written there."""
    folder = os.environ.get("SKILLGEN_RELEASES")
    if not folder or not (Path(folder) / name).is_dir():
        pytest.skip(f"SKILLGEN_RELEASES holds no {name}")
    return Path(folder) / name


def release(name: str, into: Path) -> Path:
    """A copy of an unpacked release."""
    return Path(shutil.copytree(original(name), into / name))


def checkout(revision: str, root: Path) -> Path:
    """A git checkout of the parts of a revision that a patch may touch."""
    return checkouts.checkout("SKILLGEN_BRIDGE_REPO", revision, root, CHECKOUT)


def row(path: Path) -> Row:
    """The one verdict."""
    (found,) = tp_dp_sites.rows(discover(path))
    return found


def verdict(path: Path) -> str:
    return f"{row(path).outcome.value} {row(path).reason}"


def run(command: str, path: Path, *options: str, technique: str = TECHNIQUE) -> int:
    return main([command, *([] if command == "status" else [technique]), str(path), *options])
