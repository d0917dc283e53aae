"""Apply and revert: all or nothing, and back to the byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillgen import ledger
from skillgen.kernel.model import Change
from skillgen.kernel.target import Target, discover
from skillgen.ledger import disk, record
from tests.ledger.trees import (
    ALPHA,
    TECHNIQUE,
    apply,
    checkout,
    edited,
    git,
    name,
    patch,
    refused,
    snapshot,
    tree,
    write,
)


@pytest.fixture(params=["tree", "git", "worktree", "site-packages"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "tree":
        return tree(tmp_path / "t")
    if request.param == "site-packages":
        return tree(tmp_path / "site-packages", ending="\r\n")
    made = checkout(tmp_path / "t")
    if request.param == "git":
        return made
    git(made.root, "worktree", "add", "-q", "../second")
    return discover(tmp_path / "second")


@pytest.mark.parametrize("family", ["alpha", "beta"])
def test_back_to_the_byte(target: Target, family: str) -> None:
    (target.package / "models/alpha.py").chmod(0o640)
    before = snapshot(target.root)
    changes = patch(target, family)
    receipt = apply(target, family, changes)
    assert {change.path: (target.root / change.path).read_bytes() for change in changes} == {
        change.path: change.after for change in changes
    }
    assert receipt.files == sorted(change.path for change in changes)
    assert [(row.family, row.state, row.pack_version) for row in ledger.status(target)] == [(family, "applied", "1.0")]
    assert ledger.revert(target, TECHNIQUE)[0].state == "applied"
    assert snapshot(target.root) == before
    assert not target.state_dir.exists()
    assert ledger.status(target) == []


def test_receipt_does_not_show_in_git(target: Target) -> None:
    if target.git_dir is None:
        pytest.skip("not a checkout")
    files = apply(target, "alpha").files
    shown = git(target.root, "status", "--porcelain", "-uall", "--ignored").split()
    assert sorted(shown[1::2]) == files
    ledger.revert(target, TECHNIQUE)
    assert git(target.root, "status", "--porcelain", "-uall", "--ignored") == ""


def test_state_of_a_tree_is_hidden_from_an_outer_checkout(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    target = tree(tmp_path / "inner")
    apply(target, "alpha")
    assert ".skillgen" not in git(tmp_path, "status", "--porcelain", "-uall")


def test_second_apply_writes_nothing(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = patch(target, "alpha")
    apply(target, "alpha", changes)
    before = snapshot(target.root)
    steps: list[str] = []
    monkeypatch.setattr(disk, "probe", lambda step, path: steps.append(step))
    assert apply(target, "alpha", changes).files == sorted(change.path for change in changes)
    assert apply(target, "alpha", []).files == sorted(change.path for change in changes)
    assert (snapshot(target.root), set(steps)) == (before, {"remove"})  # a stale draft of the journal is looked for


def test_mode_and_bytecode(target: Target) -> None:
    (target.package / "models/alpha.py").chmod(0o755)
    before = snapshot(target.root)
    apply(target, "alpha", allow_dirty=True)
    assert (target.package / "models/alpha.py").stat().st_mode & 0o777 == 0o755
    write(target.package / "models/shared/runtime/__pycache__/plan.cpython-311.pyc", b"")
    write(target.package / "models/shared/runtime/__pycache__/__init__.cpython-311.pyc", b"")
    ledger.revert(target, TECHNIQUE)
    assert snapshot(target.root) == before


def test_hard_linked_original_is_not_written_through(target: Target, tmp_path: Path) -> None:
    cache = tmp_path / "cached.py"
    os.link(target.package / "models/alpha.py", cache)
    apply(target, "alpha")
    assert cache.read_text() == ALPHA


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_record_stays_true(tmp_path: Path, ending: str) -> None:
    target = tree(tmp_path, ending=ending)
    info = target.dist_info()
    assert info is not None
    original = (info / "RECORD").read_bytes()
    for family in ("alpha", "beta"):
        apply(target, family)
    rows = record.rows((info / "RECORD").read_bytes())
    for path in sorted((tmp_path / "megatron").rglob("*.py")):
        relative = target.relative(path)
        assert rows[relative] == record.row(relative, path.read_bytes())
    assert (info / "RECORD").read_bytes().count(ending.encode()) == len(rows)
    ledger.revert(target, TECHNIQUE, "alpha")
    ledger.revert(target, TECHNIQUE, "beta")
    assert (info / "RECORD").read_bytes() == original


def test_record_row_of_another_tool_stays(tmp_path: Path) -> None:
    target = tree(tmp_path)
    info = target.dist_info()
    assert info is not None
    apply(target, "alpha")
    path = name(target, "models/alpha.py")
    rows = record.rows((info / "RECORD").read_bytes())
    text = (info / "RECORD").read_bytes().replace(rows[path].encode(), f"{path},,".encode())
    (info / "RECORD").write_bytes(text)
    ledger.revert(target, TECHNIQUE)
    assert record.rows((info / "RECORD").read_bytes())[path] == f"{path},,"


def test_stale_plan(target: Target) -> None:
    changes = patch(target, "alpha")
    (target.package / "models/alpha.py").write_text(ALPHA + "# later\n")
    with refused("stale-plan", 3, target.root):
        apply(target, "alpha", changes, allow_dirty=True)


@pytest.mark.parametrize("bad", ["def f(:\n", "x = '\0'\n"])
def test_syntax_error(target: Target, bad: str) -> None:
    path = name(target, "models/alpha.py")
    with refused("syntax-error", 3, target.root) as caught:
        apply(target, "alpha", [Change(path, ALPHA.encode(), bad.encode()), *patch(target, "alpha")[1:]])
    assert caught.value.where.startswith(path)
    assert not target.state_dir.exists()


def test_syntax_error_of_the_target(target: Target) -> None:
    write(target.package / "models/alpha.py", ALPHA + "def f(:\n")
    with refused("syntax-error", 3, target.root):
        apply(target, "alpha", allow_dirty=True)


@pytest.mark.parametrize("path", ["../out.py", "/tmp/out.py", ".git/hooks/x", ".skillgen/x", "a/../../x", ""])
def test_paths_outside(target: Target, path: str) -> None:
    with refused("outside", 3, target.root):
        apply(target, "alpha", [Change(path, None, b"")])


def test_symlinked_file(target: Target, tmp_path: Path) -> None:
    out = tmp_path / "out.py"
    out.write_text(ALPHA)
    (target.package / "models/alpha.py").unlink()
    (target.package / "models/alpha.py").symlink_to(out)
    with refused("symlink", 3, tmp_path):
        apply(target, "alpha", allow_dirty=True)


def test_symlinked_folder(target: Target, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (target.package / "models/shared").symlink_to(tmp_path / "out")
    with refused("symlink", 3, tmp_path) as caught:
        apply(target, "alpha", allow_dirty=True)
    assert caught.value.where == name(target, "models/shared")


def test_symlink_after_the_apply(target: Target, tmp_path: Path) -> None:
    apply(target, "alpha")
    (target.package / "models/shared").rename(tmp_path / "out")
    (target.package / "models/shared").symlink_to(tmp_path / "out")
    with refused("symlink", 3, tmp_path):
        ledger.revert(target, TECHNIQUE)


def test_symlinked_state(tmp_path: Path) -> None:
    target = tree(tmp_path / "t")
    (tmp_path / "out").mkdir()
    target.state_dir.symlink_to(tmp_path / "out")
    with refused("symlink", 3, tmp_path):
        apply(target, "alpha")


@pytest.mark.parametrize("locked", ["models/alpha.py", "models"])
def test_read_only(target: Target, monkeypatch: pytest.MonkeyPatch, locked: str) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != target.package / locked and access(path, mode))
    with refused("read-only", 6, target.root) as caught:
        apply(target, "alpha")
    assert caught.value.where == name(target, locked)


def test_file_where_a_folder_should_be(target: Target) -> None:
    write(target.package / "models/shared", "")
    with refused("in-the-way", 3, target.root):
        apply(
            target, "alpha", [edited(target, "models/alpha.py"), Change(name(target, "models/shared/a.py"), None, b"")]
        )


def test_dirty_file(tmp_path: Path) -> None:
    target = checkout(tmp_path)
    write(target.package / "models/common.py", "unrelated = 1\n")
    write(target.package / "models/alpha.py", ALPHA + "# mine\n")
    with refused("dirty", 3, target.root) as caught:
        apply(target, "alpha")
    assert caught.value.where == name(target, "models/alpha.py")
    before = snapshot(target.root)
    apply(target, "alpha", allow_dirty=True)
    ledger.revert(target, TECHNIQUE)
    assert snapshot(target.root) == before


def test_our_own_patch_is_not_dirt(tmp_path: Path) -> None:
    target = checkout(tmp_path)
    apply(target, "alpha", [edited(target, "models/common.py", ("ONE = 1", "ONE = 10")), *patch(target, "alpha")])
    apply(target, "beta", [edited(target, "models/common.py", ("THREE = 3", "THREE = 30")), *patch(target, "beta")])
    third = [edited(target, "models/common.py", ("TWO = 2", "TWO = 20"))]
    apply(target, "gamma", third)
    ledger.revert(target, TECHNIQUE, "gamma")
    with (target.package / "models/common.py").open("a") as file:
        file.write("# mine\n")
    with refused("dirty", 3, target.root):
        apply(target, "gamma", [edited(target, "models/common.py", ("TWO = 2", "TWO = 20"))])


def test_git_runs_nothing_of_the_checkout(tmp_path: Path) -> None:
    target = checkout(tmp_path / "t")
    trap = tmp_path / "trap"
    write(tmp_path / "hook", f"#!/bin/sh\ntouch {trap}\n")
    (tmp_path / "hook").chmod(0o755)
    git(target.root, "config", "core.fsmonitor", str(tmp_path / "hook"))
    hook = target.root / ".git/hooks/post-index-change"
    write(hook, f"#!/bin/sh\ntouch {trap}\n")
    hook.chmod(0o755)
    os.utime(target.package / "models/alpha.py")  # the index would want a refresh
    apply(target, "alpha")
    assert not trap.exists()


def test_bad_names_and_damage(target: Target) -> None:
    with refused("bad-name", 2, target.root):
        apply(target, "../alpha", [])
    apply(target, "alpha")
    (target.state_dir / "receipts/shard--alpha.json").write_text("{}")
    with refused("receipt-damaged", 6, target.root):
        ledger.status(target)
