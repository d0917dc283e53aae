"""Every write of the ledger: single steps that a kill can fall between, none of which follows a symlink."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath

from skillgen.kernel import paths
from skillgen.kernel.errors import IO, SkillgenError

ADVICE = {
    errno.EROFS: "mount this file system for writing, or work on a copy of the tree on another one",
    errno.EACCES: "make it readable and writable for this user, or work on a copy of the tree",
    errno.EPERM: "make it writable for this user, or work on a copy of the tree",
    errno.ENOSPC: "free space on this file system, then run the command again",
    errno.EDQUOT: "free space within this user's quota, then run the command again",
    errno.ENOENT: "see that the file, or the folder that it is to be made in, is there",
    errno.ENOTDIR: "see that each part of the path but the last is a folder",
    errno.EISDIR: "name a file instead of this folder",
}
CLOSED = frozenset(("..", ".git", ".skillgen"))  # no part of a path that is written


def probe(step: str, path: Path) -> None:
    """Called before each step; tests put a full disk, an interrupt or a kill here."""


def place(base: Path, relative: str) -> Path:
    """The path of `relative` below `base`; refused where it leads out of `base` or through a symlink."""
    parts = PurePosixPath(relative).parts
    if not parts or PurePosixPath(relative).is_absolute() or not CLOSED.isdisjoint(map(str.lower, parts)):
        raise SkillgenError("outside", f"not a path inside the target: {relative!r}", where=relative)
    path = base
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise SkillgenError(
                "symlink",
                f"{relative} goes through a symlink to {os.readlink(path)}; nothing is written through symlinks",
                where=path.relative_to(base).as_posix(),
                hint="put the real file or folder there, or patch the tree that it leads to",
            )
    return path


def read(base: Path, relative: str) -> bytes | None:
    """The bytes of a file, or None where there is none."""
    try:
        return paths.read(place(base, relative), follow=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def create(path: Path, data: bytes, like: Path) -> None:
    """Write a new file and flush it to the disk. It takes mode and owner from `like`, or the owner of the folder."""
    probe("create", path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        probe("write", path)
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        model = like if like.exists() else path.parent
        if os.geteuid() == 0:
            os.fchown(fd, model.stat().st_uid, model.stat().st_gid)
        if model is like:
            os.fchmod(fd, like.stat().st_mode & 0o7777)
        probe("fsync", path)
        os.fsync(fd)
    finally:
        os.close(fd)


def keep(path: Path, backup: Path) -> None:
    """Keep the present file reachable as `backup`, so that putting it back needs no space."""
    probe("keep", path)
    try:
        os.link(path, backup, follow_symlinks=False)
    except OSError:  # a file system without hard links
        create(backup, paths.read(path, follow=False), path)


def replace(source: Path, path: Path) -> None:
    probe("replace", path)
    os.replace(source, path)


def remove(path: Path) -> None:
    probe("remove", path)
    path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    probe("mkdir", path)
    path.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        os.chown(path, path.parent.stat().st_uid, path.parent.stat().st_gid, follow_symlinks=False)


def drop_folder(path: Path) -> None:
    """Remove a folder if it is empty."""
    probe("rmdir", path)
    with suppress(OSError):
        path.rmdir()


def flush(folder: Path) -> None:
    """Make renames in a folder durable."""
    probe("flush", folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:  # some network file systems cannot
        pass
    finally:
        os.close(fd)


def failed(error: OSError, what: str) -> SkillgenError:
    """An OSError as the failure that a user sees."""
    where = os.fspath(error.filename) if isinstance(error.filename, str) else ""
    return SkillgenError("io", f"{what}: {error.strerror or error}", where=where, hint=advice(error), exit_code=IO)


def advice(error: OSError) -> str:
    """What a user can do about an error of the file system; empty where its text says it all."""
    return ADVICE.get(error.errno or 0, "")
