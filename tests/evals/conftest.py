"""Patched real targets, where an environment variable says from what."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from skillgen.cli import main

TECHNIQUE = "vision-dp-over-cp"


def released(name: str) -> Path:
    """An unpacked release that `make` has fetched."""
    folder = os.environ.get("SKILLGEN_RELEASES")
    if not folder:
        pytest.skip("SKILLGEN_RELEASES names no folder of unpacked releases")
    if not (Path(folder) / name).is_dir():
        pytest.skip(f"SKILLGEN_RELEASES holds no {name}")
    return Path(folder) / name


def apply(tree: Path, *families: str) -> Path:
    """Patch the tree by the command line."""
    assert main(["apply", TECHNIQUE, str(tree), *[word for family in families for word in ("--family", family)]]) == 0
    return tree


@pytest.fixture(scope="session")
def mcore() -> Path:
    return released("core-0.19.2")


@pytest.fixture(scope="session")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Megatron-Bridge 0.6.2 with two families patched."""
    source = released("bridge-0.6.2")
    tree = tmp_path_factory.mktemp("bridge") / "tree"
    shutil.copytree(source, tree)
    return apply(tree, "ministral3", "qwen3_omni")


@pytest.fixture(scope="session")
def bridge_main(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Megatron-Bridge main of August 2026, unpatched."""
    repo = os.environ.get("SKILLGEN_BRIDGE_REPO")
    if not repo:
        pytest.skip("SKILLGEN_BRIDGE_REPO names no checkout of Megatron-Bridge")
    packed = subprocess.run(["git", "-C", repo, "archive", "067f987df", "src/megatron/bridge"], capture_output=True)
    if packed.returncode:
        pytest.skip("SKILLGEN_BRIDGE_REPO does not have 067f987df")
    tree = tmp_path_factory.mktemp("main")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree
