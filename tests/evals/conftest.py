"""Patched real targets, where an environment variable says from what."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from skillgen.cli.parser import main
from tests import checkouts

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


def small(folder: Path) -> Path:
    """Automodel 0.7.0 with the patch whose eval takes least time."""
    tree = shutil.copytree(released("automodel-0.7.0"), folder / "tree")
    assert main(["apply", "blockdiag-gqa", str(tree)]) == 0
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
    tree = tmp_path_factory.mktemp("main")
    return checkouts.unpack("SKILLGEN_BRIDGE_REPO", "067f987df", tree, ["src/megatron/bridge"])
