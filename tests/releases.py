"""Unpacked releases of the targets, where SKILLGEN_RELEASES names the folder to which `make` has fetched them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from skillgen.cli.parser import main


def original(name: str) -> Path:
    """A release as it was fetched; nothing may be written there."""
    folder = os.environ.get("SKILLGEN_RELEASES")
    if not folder or not (Path(folder) / name).is_dir():
        pytest.skip(f"SKILLGEN_RELEASES names no folder that holds {name}")
    return Path(folder) / name


def copy(name: str, into: Path) -> Path:
    """A copy to patch, in a folder of the release's name."""
    skipped = shutil.ignore_patterns(".skillgen", "__pycache__")
    return Path(shutil.copytree(original(name), into / name, ignore=skipped))


def patched(name: str, into: Path, technique: str, *options: str) -> Path:
    """A copy, patched by the command line."""
    tree = copy(name, into)
    assert main(["apply", technique, str(tree), *options]) == 0
    return tree


def small(into: Path) -> Path:
    """The release and the patch whose eval takes least time."""
    return patched("automodel-0.7.0", into, "blockdiag-gqa")
