"""One command at a time per target."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skillgen.errors import IO, SkillgenError
from skillgen.target import Target


@contextmanager
def locked(target: Target) -> Iterator[None]:
    """Hold the target's lock; the folder it lives in is made, and removed again once it holds nothing else."""
    state = target.state_dir
    if state.is_symlink():
        raise SkillgenError("symlink", f"{state.name} is a symlink", where=str(state))
    fd = _acquire(state, hidden=target.git_dir is None)
    try:
        yield
    finally:
        _tidy(state)
        os.close(fd)


def _acquire(state: Path, *, hidden: bool) -> int:
    for _ in range(100):
        try:
            state.mkdir(exist_ok=True)
            if hidden:  # a tree may lie inside some other checkout
                (state / ".gitignore").write_text("*\n")
            fd = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # the holder before us has just removed the folder
            continue
        except OSError as error:
            raise SkillgenError("read-only", f"cannot write to {state}: {error.strerror}", exit_code=IO) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_ino == os.stat(state / "lock").st_ino:
                return fd
        except BlockingIOError:
            os.close(fd)
            raise SkillgenError(
                "locked", "another skillgen command works on this target", where=str(state), hint="wait for it to end"
            ) from None
        except FileNotFoundError:
            pass  # removed between opening and locking it
        except OSError as error:
            os.close(fd)
            raise SkillgenError("lock", f"cannot lock {state}: {error.strerror}", exit_code=IO) from error
        os.close(fd)
    raise SkillgenError("read-only", f"cannot create {state}", exit_code=IO)


def _tidy(state: Path) -> None:
    with suppress(OSError):
        (state / "receipts").rmdir()
    if {entry.name for entry in os.scandir(state)} <= {"lock", ".gitignore"}:
        with suppress(OSError):
            (state / ".gitignore").unlink(missing_ok=True)
            (state / "lock").unlink()
            state.rmdir()
