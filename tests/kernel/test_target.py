"""What is a target, and what is made of a path to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillgen.kernel.target import discover
from tests.ledger.trees import PACKAGE_INFO, checkout, git, refused, tree, write


def _package(root: Path, package: str, info: str = PACKAGE_INFO) -> None:
    write(root / package / "__init__.py", "raise SystemExit('code of the target was run')\n")
    write(root / package / "package_info.py", info)


@pytest.mark.parametrize(
    ("package", "product", "kind", "folder"),
    [
        pytest.param("megatron/bridge", "megatron-bridge", "tree", "unpacked", id="bridge-wheel"),
        pytest.param("nemo_automodel", "automodel", "tree", "unpacked", id="automodel-wheel"),
        pytest.param("megatron/core", "megatron-core", "tree", "unpacked", id="core-wheel"),
        pytest.param("megatron/bridge", "megatron-bridge", "site-packages", "lib/site-packages", id="installed"),
        pytest.param("nemo_automodel", "automodel", "site-packages", "lib/dist-packages", id="debian"),
    ],
)
def test_trees(tmp_path: Path, package: str, product: str, kind: str, folder: str) -> None:
    root = tmp_path / folder
    _package(root, package)
    target = discover(root)
    assert (target.root, target.product, target.kind) == (root, product, kind)
    assert (target.package, target.version) == (root / package, "0.6.2")
    assert (target.git_dir, target.state_dir) == (None, root / ".skillgen")


@pytest.mark.parametrize("at", ["", "src", "src/megatron/bridge", "src/megatron/bridge/models/alpha.py"])
def test_checkout_from_any_path(tmp_path: Path, at: str) -> None:
    checkout(tmp_path / "repo")
    target = discover(tmp_path / "repo" / at)
    assert (target.root, target.kind, target.version) == (tmp_path / "repo", "git", "0.6.2")
    assert target.state_dir == tmp_path / "repo/.git/skillgen"
    assert target.relative(target.package) == "src/megatron/bridge"


def test_worktree(tmp_path: Path) -> None:
    checkout(tmp_path / "repo")
    git(tmp_path / "repo", "worktree", "add", "-q", str(tmp_path / "second"))
    target = discover(tmp_path / "second")
    assert (target.root, target.kind) == (tmp_path / "second", "git")
    assert target.state_dir == tmp_path / "repo/.git/worktrees/second/skillgen"


def test_tree_inside_another_checkout_is_a_tree(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    target = tree(tmp_path / "cache/bridge")
    assert (target.kind, target.root) == ("tree", tmp_path / "cache/bridge")


def test_source_archive_without_git(tmp_path: Path) -> None:
    _package(tmp_path, "src/megatron/bridge")
    write(tmp_path / "pyproject.toml", "[project]\n")
    assert (discover(tmp_path).root, discover(tmp_path).kind) == (tmp_path, "tree")


@pytest.mark.parametrize(
    ("at", "product", "found"),
    [
        pytest.param("", None, "megatron-bridge", id="bridge-comes-first"),
        pytest.param("", "megatron-core", "megatron-core", id="asked-for"),
        pytest.param("megatron/core", None, "megatron-core", id="inside"),
        pytest.param("megatron/core", "megatron-bridge", "megatron-bridge", id="asked-for-beside"),
    ],
)
def test_two_products_in_one_tree(tmp_path: Path, at: str, product: str | None, found: str) -> None:
    _package(tmp_path, "megatron/bridge")
    _package(tmp_path, "megatron/core")
    assert discover(tmp_path / at, product).product == found


@pytest.mark.parametrize(
    ("files", "version"),
    [
        pytest.param({"megatron/bridge/package_info.py": PACKAGE_INFO.replace('""', '"rc1"')}, "0.6.2rc1", id="rc"),
        pytest.param({"Megatron.Bridge-0.4.dist-info/METADATA": ""}, "0.4", id="dist-info"),
        pytest.param({"pyproject.toml": '[project]\nversion = "0.5"\n'}, "0.5", id="pyproject"),
        pytest.param({"megatron/bridge/package_info.py": "MAJOR = (\n"}, None, id="unreadable"),
        pytest.param({"megatron/bridge/package_info.py": "(" * 9000}, None, id="nested-too-deeply"),
        pytest.param({"pyproject.toml": "project = 1\n"}, None, id="no-table"),
    ],
)
def test_version(tmp_path: Path, files: dict[str, str], version: str | None) -> None:
    for path, text in {"megatron/bridge/__init__.py": "", **files}.items():
        write(tmp_path / path, text)
    assert discover(tmp_path).version == version


def test_dist_info_of_the_version(tmp_path: Path) -> None:
    _package(tmp_path, "megatron/bridge")
    for old in ("0.5.1", "0.6.2", "0.7.0"):
        (tmp_path / f"megatron_bridge-{old}.dist-info").mkdir()
    info = discover(tmp_path).dist_info()
    assert info is not None and info.name == "megatron_bridge-0.6.2.dist-info"


def test_not_a_target(tmp_path: Path) -> None:
    with refused("not-a-target", 2) as caught:
        discover(tmp_path)
    assert "megatron/bridge/__init__.py" in caught.value.message
    with refused("not-a-target", 2):
        discover(tmp_path / "nowhere")
    with refused("unknown-product", 2):
        discover(tmp_path, "nemo")
    with refused("no-home", 2) as caught:
        discover("~nosuch/tree")
    assert caught.value.where == "~nosuch/tree" and caught.value.hint


def test_git_file_that_leads_nowhere(tmp_path: Path) -> None:
    _package(tmp_path, "megatron/bridge")
    write(tmp_path / ".git", "gitdir: ../elsewhere\n")
    assert discover(tmp_path).kind == "tree"
