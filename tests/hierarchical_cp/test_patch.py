"""The patch of hierarchical context parallelism on wheels in SKILLGEN_RELEASES and on revisions of a clone."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from skillgen.cli.parser import main
from skillgen.engine.scan import scan
from skillgen.kernel.target import discover
from skillgen.techniques.hierarchical_cp import sites as hcp_sites
from tests import checkouts, releases
from tests.cli.trees import git, snapshot

TECHNIQUE = "hierarchical-cp"
NO_RECIPE = "applicable no-recipe"
REFUSES, IGNORES = "applicable decentralized-refuses", "applicable decentralized-ignores"
NONE, PART = "applicable no-validation", "upgrade incomplete-validation"
OUTCOMES = {
    "bridge-0.3.1": {"groups": IGNORES, "checks": NONE, "recipe": NO_RECIPE},
    "bridge-0.4.2": {"groups": REFUSES, "checks": PART, "recipe": NO_RECIPE},
    "bridge-0.6.2": {"groups": REFUSES, "checks": PART, "recipe": NO_RECIPE},
    "core-0.16.1": {"attention": "applicable collection-unread"},
    "core-0.19.2": {"attention": "applicable collection-unread"},
}
REVISIONS = {"v0.3.1": "bridge-0.3.1", "v0.4.2": "bridge-0.4.2", "v0.6.0": "bridge-0.6.2", "067f987df": "bridge-0.6.2"}
CHECKOUT = ("src", "tests", "docs/training", "skills", "examples", "pyproject.toml", "ruff.toml")

Tree = Callable[[str], Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A copy of an unpacked release."""

    def copy(name: str) -> Path:
        return releases.copy(name, tmp_path)

    return copy


def checkout(revision: str, root: Path) -> Path:
    """A git checkout of the parts of a revision that a patch may touch."""
    return checkouts.checkout("SKILLGEN_BRIDGE_REPO", revision, root, CHECKOUT)


def verdicts(path: Path) -> dict[str, str]:
    return {
        row.family: f"{row.outcome.value} {row.reason}" for row in scan(discover(path), technique=hcp_sites.TECHNIQUE)
    }


def run(command: str, path: Path, *options: str) -> int:
    return main([command, *([] if command == "status" else [TECHNIQUE]), str(path), *options])


@pytest.mark.parametrize("release", OUTCOMES)
def test_apply_twice_and_revert(release: str, tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree(release)
    before = snapshot(root)
    assert verdicts(root) == OUTCOMES[release]
    assert run("apply", root) == 0
    assert verdicts(root) == dict.fromkeys(OUTCOMES[release], "applied patched-by-skillgen")
    applied = snapshot(root)
    assert run("apply", root) == 0
    assert snapshot(root) == applied != before
    capsys.readouterr()
    assert run("status", root, "--json") == 0
    assert capsys.readouterr().out.count('"state": "applied"') >= len(OUTCOMES[release])
    assert run("revert", root) == 0
    assert snapshot(root) == before


@pytest.mark.parametrize("revision", REVISIONS)
def test_checkout(revision: str, tmp_path: Path) -> None:
    """The target's own ruff is asked on the way, and tests, pages and examples are part of the patch."""
    root = checkout(revision, tmp_path / "checkout")
    assert verdicts(root) == OUTCOMES[REVISIONS[revision]]
    assert run("apply", root) == 0
    changed = git(root, "status", "--short", "--untracked-files=all")
    assert changed.count("test_hierarchical_cp") == 3
    wrong = [] if revision == "v0.3.1" else ["docs/training/", "skills/"]
    assert all(place in changed for place in ("examples/", "training/initialize.py", *wrong))
    assert run("apply", root) == 0
    assert git(root, "status", "--short", "--untracked-files=all") == changed
    assert run("revert", root) == 0
    assert git(root, "status", "--short", "--untracked-files=all") == ""


@pytest.mark.parametrize("release", ["bridge-0.3.1", "bridge-0.6.2"])
def test_parts_stand_on_their_own(release: str, tree: Tree) -> None:
    root = tree(release)
    alone = {}
    for part in OUTCOMES[release]:
        assert run("apply", root, "--family", part) == 0
        alone[part] = snapshot(root)
        assert run("revert", root) == 0
    for part in OUTCOMES[release]:
        assert run("apply", root, "--family", part) == 0
    for part in ("recipe", "checks"):
        assert run("revert", root, "--family", part) == 0

    def files(found: dict[str, bytes | str]) -> dict[str, bytes | str]:
        return {name: content for name, content in found.items() if not name.startswith((".skillgen",))}

    assert files(snapshot(root)) == files(alone["groups"])


@pytest.mark.parametrize("release", ["bridge-0.3.1", "bridge-0.6.2"])
def test_core_hands_the_groups_on_where_it_is_asked_to(release: str, tree: Tree) -> None:
    root = tree(release)
    initialize, module = (root / "megatron/bridge" / path for path in (hcp_sites.INITIALIZE, hcp_sites.GROUPS))
    assert run("apply", root, "--family", "groups") == 0
    assert initialize.read_text().count("set_hierarchical_cp_groups(") == 3
    assert run("apply", root, "--family", "groups", "--consumer", "core") == 0
    for _ in range(2):  # and again without the option: the choice stays
        assert "set_hierarchical_cp_groups" not in initialize.read_text() + module.read_text()
        assert "hcp=hcp_pgs" in initialize.read_text()
        assert run("apply", root, "--family", "groups") == 0


def test_the_guard_goes_only_where_groups_are_made(tree: Tree) -> None:
    root = tree("bridge-0.6.2")
    initialize = root / "megatron/bridge" / hcp_sites.INITIALIZE
    assert run("apply", root, "--family", "checks", "--family", "recipe") == 0
    assert "NotImplementedError" in initialize.read_text()
    assert run("apply", root) == 0
    text = initialize.read_text()
    assert "NotImplementedError" not in text
    create = next(
        n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == "_create_pg_collection"
    )
    calls = sorted((n for n in ast.walk(create) if isinstance(n, ast.Call)), key=lambda call: call.lineno)
    names = [ast.unparse(call.func) for call in calls]
    ours = ["check_hierarchical_cp_sizes", "create_hierarchical_cp_groups", "set_hierarchical_cp_groups"]
    assert [name for name in names if name in ours] == ours
    grids = [index for index, name in enumerate(names) if name == "HyperCommGrid"]
    assert len(grids) == 3  # none of ours: the target's tests count them


MOVED = {
    "groups": (hcp_sites.INITIALIZE, "def _create_pg_collection(", "def _create_collection("),
    "checks": (hcp_sites.CONFIG, "    def validate(self)", "    def validated(self)"),
    "recipe": ("recipes/qwen/h100/qwen3.py", "def qwen3_600m_pretrain_1gpu_h100_bf16_config(", "def other("),
}


@pytest.mark.parametrize("part", MOVED)
def test_drift_is_told_and_nothing_written(part: str, tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree("bridge-0.6.2")
    path, old, new = MOVED[part]
    file = root / "megatron/bridge" / path
    file.write_text(file.read_text().replace(old, new))
    before = snapshot(root)
    assert verdicts(root)[part] == "drift anchor-moved"
    assert run("apply", root, "--family", part) == 4
    assert snapshot(root) == before
    assert "last verified against 0.3.1, 0.4.2, 0.6.2" in capsys.readouterr().err


def test_an_inner_anchor_that_moved_is_drift_too(tree: Tree) -> None:
    root = tree("bridge-0.6.2")
    file = root / "megatron/bridge" / hcp_sites.INITIALIZE
    file.write_text(
        file.read_text().replace('dp_cp_pg = grid.create_pg(["dp", "cp"])', 'dp_cp_pg = made(["dp", "cp"])')
    )
    before = snapshot(root)
    assert run("apply", root) == 4
    assert snapshot(root) == before


def test_a_broken_file_is_refused(tree: Tree) -> None:
    root = tree("bridge-0.6.2")
    file = root / "megatron/bridge" / hcp_sites.CONFIG
    file.write_text(file.read_text() + "\ndef broken(:\n")
    assert verdicts(root)["checks"] == "refused syntax-error"
    assert run("apply", root, "--family", "checks") == 3


def test_hcp_that_nobody_reads_is_told(tree: Tree) -> None:
    root = tree("bridge-0.6.2")
    file = root / "megatron/bridge" / hcp_sites.INITIALIZE
    file.write_text(file.read_text().replace("        hcp=None,", "        hcp=tuple(grid.levels()),"))
    row = next(row for row in scan(discover(root), technique=hcp_sites.TECHNIQUE) if row.family == "groups")
    assert (row.outcome.value, row.reason, row.plannable) == ("upgrade", "groups-unread", False)
    assert run("apply", root, "--family", "groups") == 3


def test_megatron_core_of_its_own_accord(tree: Tree) -> None:
    root = tree("core-0.19.2")
    file = root / "megatron/core" / hcp_sites.ENGINE
    head, _, tail = file.read_text().rpartition("get_hierarchical_context_parallel_groups(")
    file.write_text(f"{head}pg_collection.hcp{tail.partition(')')[2]}")
    assert verdicts(root) == {"attention": "upstream upstream-has-it"}


def test_other_products_have_no_rows(tmp_path: Path) -> None:
    (tmp_path / "nemo_automodel").mkdir()
    (tmp_path / "nemo_automodel/__init__.py").write_text("")
    assert scan(discover(tmp_path), technique=hcp_sites.TECHNIQUE) == []
