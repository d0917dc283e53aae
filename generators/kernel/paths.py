"""Paths as users write them, and reads of regular files alone: a pipe or a device in a tree may never end."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from skillgen.kernel.errors import USAGE, SkillgenError


def given(text: str | Path) -> Path:
    """The path that a user means: "~" and "~name" are home folders."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise SkillgenError(
            "no-home",
            f"there is no home folder to put in the place of the ~ in {text}",
            where=str(text),
            hint="write the path out; one that begins with ~ by its name is meant as ./~name",
            exit_code=USAGE,
        ) from None


def read(path: Path, *, follow: bool = True, shown: str = "") -> bytes:
    """The bytes of a file, `shown` in a refusal; `follow` goes through a symlink in its place."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise odd(shown or str(path))
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def odd(path: Path | str, needed: str = "a regular file") -> SkillgenError:
    """The refusal of what is neither the file nor the folder that it has to be."""
    hint = "move it away, then run the command again"
    return SkillgenError("in-the-way", f"{path} is not {needed}", where=str(path), hint=hint)


def hard_link(path: Path) -> SkillgenError:
    """The refusal of a file that has another name too, perhaps in a place that is not to be written."""
    hint = "remove it, then run the command again"
    message = f"{path.name} is a hard link, and would be written through"
    return SkillgenError("hard-link", message, where=str(path), hint=hint)


def plain(path: Path, kind: Callable[[int], bool], needed: str) -> None:
    """Refuse a link, or what is not of this kind; nothing there is fine."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(mode):
        raise SkillgenError(
            "symlink",
            f"{path.name} is a symlink to {os.readlink(path)}; nothing is read or written through symlinks",
            where=str(path),
            hint=f"put {needed} there, or remove the link",
        )
    if not kind(mode):
        raise odd(path, needed)
