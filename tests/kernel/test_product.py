"""Products are found by walking their folder: a new one is one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from skillgen.kernel.product import product, products
from skillgen.kernel.target import discover
from tests.ledger.trees import git, refused, write

ROOT = Path(__file__).parents[2]
TOY = """
from skillgen.kernel.product import Product

PRODUCT = Product(
    name="toy",
    title="Toy",
    package="toys/train",
    distribution="Toy.Train",
    releases="toy",
    rank=0,
    markers=("about.py",),
    versions=("about.py",),
)
"""
DISCOVER = """
import sys, skillgen, skillgen.products
skillgen.products.__path__.append(sys.argv[1])
from skillgen.kernel.target import discover
target = discover(sys.argv[2])
print(target.product, target.version, target.about.module, target.search_path, target.dist_info().name)
"""


def test_a_toy_product_in_one_file_is_recognised(tmp_path: Path) -> None:
    write(tmp_path / "more/toy.py", TOY)
    root = tmp_path / "tree"
    write(root / "toys/train/about.py", '__version__ = "1.2"\n')
    write(root / "megatron/bridge/__init__.py", "")  # of a higher rank
    (root / "toy_train-1.2.dist-info").mkdir()
    command = [sys.executable, "-c", DISCOVER, str(tmp_path / "more"), str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split() == ["toy", "1.2", "toys.train", str(root), "toy_train-1.2.dist-info"], done.stderr


@pytest.mark.parametrize("name", products())
def test_each_product_is_found_by_its_marker(tmp_path: Path, name: str) -> None:
    known = product(name)
    for marker in known.markers:
        write(tmp_path / marker / known.package / marker, "")
        assert discover(tmp_path / marker).product == name


def test_products_have_names_and_packages_of_their_own() -> None:
    found = products().values()
    assert len(found) == len(list((ROOT / "generators/products").glob("[!_]*.py")))
    for field in ("name", "package", "distribution", "releases", "rank"):
        assert len({getattr(known, field) for known in found}) == len(found)


def test_what_lies_in_anothers_repository_is_found_where_it_is_asked_for(tmp_path: Path) -> None:
    bridge, core = tmp_path / "repo", tmp_path / "repo/3rdparty/Megatron-LM"
    write(bridge / "src/megatron/bridge/__init__.py", "")
    git(bridge, "init", "-q")
    with refused("not-a-target", 2):
        discover(bridge, "megatron-core")
    write(core / "megatron/core/__init__.py", "")
    assert discover(bridge).product == "megatron-bridge"
    found = discover(bridge / "src", "megatron-core")
    assert (found.product, found.root, found.kind) == ("megatron-core", core, "tree")
