"""What a tree brings in the place of our state folder's files is neither followed, written through nor waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillgen import ledger
from skillgen.kernel.target import Target
from tests.ledger.trees import TECHNIQUE, apply, patch, refused, snapshot, tree, write

FILES = [".gitignore", "lock", "journal.json", "journal.json.new", "committed.json", "receipts/shard--alpha.json"]
Put = Callable[[Path, Path], None]
PUTS: dict[str, Put] = {
    "symlink": lambda path, victim: path.symlink_to(victim),
    "dangling": lambda path, victim: path.symlink_to(victim.with_name("nothing")),
    "pipe": lambda path, victim: os.mkfifo(path),
    "folder": lambda path, victim: path.mkdir(),
}


def _hung(*_: object) -> None:
    raise AssertionError("a read that waits")


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """A read of a pipe would wait for ever."""
    signal.signal(signal.SIGALRM, _hung)
    signal.alarm(2)
    yield
    signal.alarm(0)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A tree beside a file of somebody else."""
    write(tmp_path / "victim", "theirs\n")
    return tree(tmp_path / "t")


def everything(target: Target) -> dict[str, object]:
    """What is there, and the bytes of what can be read without waiting."""
    found: dict[str, object] = {}
    for path in target.root.parent.rglob("*"):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_ino, path.read_bytes() if path.is_file() else None)
    return found


def refuse_all(target: Target, code: str) -> None:
    before = everything(target)
    changes = patch(target, "alpha")
    for work in (
        lambda: apply(target, "alpha", changes),
        lambda: ledger.revert(target, TECHNIQUE),
        lambda: ledger.status(target),
        lambda: ledger.without(target, TECHNIQUE, "alpha"),
        lambda: ledger.recover(target),
    ):
        with refused(code, 3):
            work()
        assert everything(target) == before


@pytest.mark.parametrize("way", PUTS)
@pytest.mark.parametrize("name", FILES)
def test_in_the_place_of_a_file(target: Target, name: str, way: str) -> None:
    path = target.state_dir / name
    path.parent.mkdir(parents=True)
    PUTS[way](path, target.root.parent / "victim")
    refuse_all(target, "symlink" if way in ("symlink", "dangling") else "in-the-way")


@pytest.mark.parametrize("way", ["symlink", "dangling", "pipe", "file"])
@pytest.mark.parametrize("name", ["", "receipts"])
def test_in_the_place_of_a_folder(target: Target, name: str, way: str) -> None:
    path = target.state_dir / name
    path.parent.mkdir(exist_ok=True)
    (target.root.parent / "away").mkdir()
    puts: dict[str, Put] = {**PUTS, "file": lambda path, victim: path.write_text("") and None}
    puts[way](path, target.root.parent / "away")
    refuse_all(target, "symlink" if way in ("symlink", "dangling") else "in-the-way")


def test_a_hard_link_to_a_file_elsewhere(target: Target) -> None:
    target.state_dir.mkdir()
    os.link(target.root.parent / "victim", target.state_dir / ".gitignore")
    refuse_all(target, "hard-link")


def test_copies_by_hard_links(target: Target, tmp_path: Path) -> None:
    """As `cp -al` makes them: each is reverted by itself."""
    before = snapshot(target.root)
    apply(target, "alpha")
    patched = snapshot(target.root)
    for path in sorted(target.root.rglob("*")):
        copy = tmp_path / "copy" / path.relative_to(target.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.mkdir() if path.is_dir() else os.link(path, copy)
    ledger.revert(target, TECHNIQUE)
    assert snapshot(target.root) == before
    assert snapshot(tmp_path / "copy") == patched


@pytest.mark.parametrize("content", ["", "*", "mine\n"])
def test_a_gitignore_that_a_kill_cut_is_completed(target: Target, content: str) -> None:
    write(target.state_dir / ".gitignore", content)
    apply(target, "alpha")
    assert (target.state_dir / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("way", ["pipe", "folder"])
@pytest.mark.parametrize(
    "name", ["megatron/bridge/models/shared/runtime/plan.py", "megatron_bridge-0.6.2.dist-info/RECORD"]
)
def test_in_the_place_of_a_file_of_the_target(target: Target, name: str, way: str) -> None:
    changes = patch(target, "alpha")
    path = target.root / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    PUTS[way](path, path)
    before = everything(target)
    with refused("in-the-way", 3) as caught:
        apply(target, "alpha", changes)
    assert caught.value.where.endswith(name) and everything(target) == before
    assert not target.state_dir.exists()
