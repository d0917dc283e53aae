"""A failure or a kill at any step: the target is as it was, or entirely patched, never between."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillgen import ledger
from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.target import Target, discover
from skillgen.ledger import disk
from tests.ledger.trees import (
    ALPHA,
    TECHNIQUE,
    apply,
    checkout,
    edited,
    killed,
    on_step,
    patch,
    refused,
    snapshot,
    tree,
)

Work = Callable[[], object]


@pytest.fixture(params=["tree", "git"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return tree(tmp_path) if request.param == "tree" else checkout(tmp_path)


def _work(target: Target, action: str) -> Work:
    """An apply, an apply beside another family, or a revert; what it needs is prepared."""
    if action == "apply":
        changes = patch(target, "alpha")
        return lambda: apply(target, "alpha", changes)
    apply(target, "alpha", [*patch(target, "alpha"), edited(target, "models/common.py", ("ONE = 1", "ONE = 10"))])
    if action == "revert":
        return lambda: ledger.revert(target, TECHNIQUE)
    changes = [*patch(target, "beta"), edited(target, "models/common.py", ("THREE = 3", "THREE = 30"))]
    return lambda: apply(target, "beta", changes)


def _state(target: Target) -> dict[str, object]:
    """Everything in the target, its receipts too."""
    state = snapshot(target.state_dir) if target.state_dir.is_dir() else {}
    for name in ("lock", ".gitignore"):
        state.pop(name, None)
    files = {path: item for path, item in snapshot(target.root).items() if not path.startswith(".skillgen")}
    return files | {f"state/{path}": item for path, item in state.items()}


def _full(step: str, path: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _interrupt(step: str, path: Path) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("action", ["apply", "second", "revert"])
@pytest.mark.parametrize("fail", [_full, _interrupt], ids=["disk-full", "interrupt"])
def test_failure_at_each_step(
    target: Target, monkeypatch: pytest.MonkeyPatch, action: str, fail: Callable[[str, Path], None]
) -> None:
    work = _work(target, action)
    before = _state(target)
    for step in itertools.count():
        monkeypatch.setattr(disk, "probe", on_step(step, fail))
        try:
            work()
            break
        except SkillgenError as error:
            assert error.exit_code == (6 if fail is _full else 130)
            monkeypatch.undo()
            assert _state(target) == before, step
        except KeyboardInterrupt:  # before the first write or after the last
            monkeypatch.undo()
            ledger.status(target)
            if _state(target) != before:
                break
    assert step > 12
    monkeypatch.undo()
    ledger.status(target)
    assert _state(target) != before
    assert not [path for path in snapshot(target.root) if path.endswith((".new", ".old", ".put"))]


@pytest.mark.parametrize("action", ["apply", "second", "revert"])
def test_disk_that_stays_full(target: Target, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """From one step on nothing can be written; renames and removals still work, and suffice to put all back."""
    work = _work(target, action)
    before = _state(target)
    for allowed in itertools.count():
        steps = itertools.count()

        def probe(step: str, path: Path, steps: itertools.count[int] = steps, allowed: int = allowed) -> None:
            number = next(steps)
            if number == allowed or (number > allowed and step in ("create", "write", "mkdir")):
                _full(step, path)

        monkeypatch.setattr(disk, "probe", probe)
        try:
            work()
            break
        except SkillgenError as error:
            assert (error.code, error.exit_code) == ("io", 6), (allowed, error.message)
            assert _state(target) == before, allowed
    assert allowed > 12


def test_old_bytes_are_safe_before_the_first_rename(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, str]] = []
    monkeypatch.setattr(disk, "probe", lambda step, path: steps.append((step, path.name)))
    apply(target, "alpha")
    journal = steps.index(("replace", "journal.json"))
    assert steps[journal - 1] == ("fsync", "journal.json.new") and steps[journal + 1] == (
        "flush",
        target.state_dir.name,
    )
    assert steps[journal + 2] == ("mkdir", "shared")
    renames = [index for index, (step, _) in enumerate(steps) if step == "replace" and index > journal]
    created = [index for index, (step, _) in enumerate(steps) if step == "fsync"]
    assert max(created) < min(renames)


def test_real_write_error(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _state(target)
    changes = patch(target, "alpha")
    real, calls = os.write, itertools.count()

    def write(fd: int, data: bytes) -> int:
        if next(calls) == 3:
            real(fd, bytes(data)[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(SkillgenError, match="No space left"):
        apply(target, "alpha", changes)
    assert _state(target) == before


@pytest.mark.parametrize("action", ["apply", "second", "revert"])
def test_killed_at_each_step(target: Target, action: str) -> None:
    work = _work(target, action)
    before = _state(target)
    outcomes = []
    for step in itertools.count():
        if not killed(step, work):
            break
        ledger.status(target)
        outcomes.append(_state(target) == before)
        if not outcomes[-1]:
            break
    assert len(outcomes) > 12 and all(outcomes[:-1])
    for later in itertools.count(len(outcomes)):  # once it is done, a kill during the tidying changes nothing
        done = _state(target)
        if not killed(later, work):
            break
        ledger.status(target)
        assert _state(target) == done
    assert not [path for path in snapshot(target.root) if path.endswith((".new", ".old", ".put"))]
    assert (target.package / "models/alpha.py").read_text() != ALPHA or action == "revert"
    if action == "revert":
        assert not target.state_dir.exists()


def test_killed_while_undoing(target: Target) -> None:
    """A recovery that is killed, again and again, still ends with everything put back."""
    work = _work(target, "second")
    before = _state(target)
    assert killed(3, work, "replace")
    assert _state(target) != before
    kills = sum(killed(step, lambda: ledger.recover(target)) for step in range(40))
    ledger.recover(target)
    assert kills > 5
    assert _state(target) == before


def test_killed_then_edited_elsewhere(target: Target) -> None:
    place = target.package / "models/alpha.py"
    changes = patch(target, "alpha")
    assert killed(3, lambda: apply(target, "alpha", changes), "replace")
    assert place.read_text() != ALPHA
    place.write_text("# mine\n" + place.read_text())
    ledger.status(target)
    assert place.read_text() == "# mine\n" + ALPHA
    assert not target.state_dir.exists()


def test_killed_then_edited_in_the_patch(target: Target) -> None:
    place = target.package / "models/alpha.py"
    changes = patch(target, "alpha")
    assert killed(3, lambda: apply(target, "alpha", changes), "replace")
    place.write_text(place.read_text().replace("self.shard", "self.other"))
    with refused("conflict", 5, target.root):
        ledger.status(target)
    place.write_text(ALPHA)
    assert ledger.status(target) == []


def test_lock(target: Target) -> None:
    target.state_dir.mkdir()
    with open(target.state_dir / "lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with refused("locked", 3):
            apply(target, "alpha")
    apply(target, "alpha")
    assert ledger.status(target)[0].state == "applied"


def test_second_process_is_refused(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one apply is at work, every command of another process says so."""
    seen = []

    def probe(step: str, path: Path) -> None:
        if step != "replace":
            return
        pid = os.fork()
        if pid == 0:
            monkeypatch.undo()
            codes = set()
            for command in (lambda: apply(discover(target.root), "beta"), lambda: ledger.status(target)):
                try:
                    command()
                except SkillgenError as error:
                    codes.add(error.code)
            os._exit(0 if codes == {"locked"} else 1)
        seen.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    monkeypatch.setattr(disk, "probe", probe)
    apply(target, "alpha")
    assert seen and set(seen[:-1]) == {0}
