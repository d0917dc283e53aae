"""Copies of releases in SKILLGEN_RELEASES, checkouts of a clone in SKILLGEN_BRIDGE_REPO, and commands on them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from cli.trees import git

from skillgen import tp_dp_sites
from skillgen.cli import main
from skillgen.model import Row
from skillgen.target import discover

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
    repo = os.environ.get("SKILLGEN_BRIDGE_REPO")
    if not repo:
        pytest.skip("SKILLGEN_BRIDGE_REPO names no checkout of Megatron-Bridge")
    packed = subprocess.run(["git", "-C", repo, "archive", revision, *CHECKOUT], capture_output=True)
    if packed.returncode:
        pytest.skip(f"SKILLGEN_BRIDGE_REPO does not have {revision}: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(root, filter="data")
    git(root, "init", "-q")
    git(root, "add", "-A", "-f")
    git(root, "commit", "-q", "-m", "start")
    return root


def row(path: Path) -> Row:
    """The one verdict."""
    (found,) = tp_dp_sites.rows(discover(path))
    return found


def verdict(path: Path) -> str:
    return f"{row(path).outcome.value} {row(path).reason}"


def run(command: str, path: Path, *options: str, technique: str = TECHNIQUE) -> int:
    return main([command, *([] if command == "status" else [technique]), str(path), *options])
