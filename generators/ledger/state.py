"""The state folder of a tree may have come with the tree: what lies in it is looked at before it is used."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from skillgen.kernel.paths import hard_link, odd, plain, read

JOURNAL, COMMITTED, DRAFT = "journal.json", "committed.json", "journal.json.new"
LOCK, IGNORE, RECEIPTS = "lock", ".gitignore", "receipts"
HIDDEN = b"*\n"  # what .gitignore holds


def check(state: Path) -> None:
    """Refuse a folder where a link, a pipe or the like stands in the place of a file or folder of ours."""
    plain(state, stat.S_ISDIR, "a folder")
    plain(state / RECEIPTS, stat.S_ISDIR, "a folder")
    files = [state / name for name in (JOURNAL, COMMITTED, DRAFT, LOCK, IGNORE)]
    for path in (*files, *(state / RECEIPTS).glob("*.json")):
        plain(path, stat.S_ISREG, "a regular file")
    with suppress(FileNotFoundError):
        _ours(state / IGNORE, read(state / IGNORE, follow=False), (state / IGNORE).lstat())


def hide(state: Path) -> None:
    """Keep the folder out of git: a tree may lie inside some other checkout."""
    path = state / IGNORE
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise odd(path)
        there = os.read(fd, len(HIDDEN) + 1)
        _ours(path, there, found)
        if there != HIDDEN:
            os.ftruncate(fd, 0)
            os.pwrite(fd, HIDDEN, 0)
    finally:
        os.close(fd)


def _ours(path: Path, content: bytes, found: os.stat_result) -> None:
    """Another content is written over, so it must not be that of a file elsewhere; copies by hard links have ours."""
    if content != HIDDEN and found.st_nlink > 1:
        raise hard_link(path)
