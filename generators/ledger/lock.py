"""One command at a time per target."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skillgen.kernel.errors import IO, SkillgenError
from skillgen.kernel.paths import plain
from skillgen.kernel.target import Target
from skillgen.ledger.disk import advice
from skillgen.ledger.state import IGNORE, LOCK, RECEIPTS, check, hide


class NoLocks(OSError):
    """The file system cannot lock files."""


@contextmanager
def locked(target: Target) -> Iterator[None]:
    """Hold the target's lock; the folder it lives in is made, and removed again once it holds nothing else."""
    state = target.state_dir
    check(state)
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
            if hidden:
                hide(state)
            if (fd := take(state / LOCK)) is not None:
                return fd
        except FileNotFoundError:  # the holder before us has just removed the folder
            continue
        except BlockingIOError:
            raise SkillgenError(
                "locked", "another skillgen command works on this target", where=str(state), hint="wait for it to end"
            ) from None
        except NoLocks as error:
            raise SkillgenError(
                "lock",
                f"cannot lock {state}: {error.strerror}",
                where=str(state),
                hint="this file system has no locks: copy the tree to another one and patch the copy",
                exit_code=IO,
            ) from error
        except OSError as error:
            raise SkillgenError(
                "read-only",
                f"cannot write to {state}: {error.strerror}",
                where=str(state if os.path.isdir(state) else state.parent),
                hint=advice(error),
                exit_code=IO,
            ) from error
    raise SkillgenError(
        "read-only", f"cannot create {state}", where=str(state), hint="let no other program remove it", exit_code=IO
    )


def take(path: Path) -> int | None:
    """A descriptor that holds the lock file at `path`; None where its holder has just removed it."""
    plain(path, stat.S_ISREG, "a regular file")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            raise NoLocks(error.errno, error.strerror) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), os.lstat(path)):
                held, fd = fd, -1
                return held
    finally:
        if fd >= 0:
            os.close(fd)
    return None


def _tidy(state: Path) -> None:
    with suppress(OSError):
        (state / RECEIPTS).rmdir()
    if {entry.name for entry in os.scandir(state)} <= {LOCK, IGNORE}:
        with suppress(OSError):
            (state / IGNORE).unlink(missing_ok=True)
            (state / LOCK).unlink()
            state.rmdir()
