"""The files of one update: all of them are written, or none is."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


def write(root: Path, files: dict[str, str]) -> list[str]:
    """Write what differs from the disk; the names of those files.

    Every file is replaced whole. An error puts back what was replaced; a kill between two leaves whole files, which
    the next update brings into line.
    """
    new = {name: text.encode() for name, text in files.items()}
    new = {name: data for name, data in new.items() if _bytes(root / name) != data}
    drafts: list[tuple[Path, Path]] = []
    before: dict[Path, Path | None] = {}
    replaced: list[Path] = []
    made: list[Path] = []
    try:
        for name, data in new.items():
            path = Path(os.path.realpath(root / name))
            made += _folders(path.parent)
            there = _bytes(path)
            before[path] = None if there is None else _draft(path, there)
            drafts.append((_draft(path, data), path))
        for draft, path in drafts:
            replaced.append(path)
            os.replace(draft, path)
    except BaseException:
        for path in reversed(replaced):
            with suppress(OSError):
                if (old := before[path]) is None:
                    path.unlink(missing_ok=True)
                else:
                    os.replace(old, path)
        raise
    finally:
        for left in filter(None, (*before.values(), *(draft for draft, _ in drafts))):
            with suppress(OSError):
                left.unlink(missing_ok=True)
        for folder in reversed(made):  # those that hold nothing
            with suppress(OSError):
                folder.rmdir()
    return list(new)


def _draft(path: Path, data: bytes) -> Path:
    """The data on the disk, in the folder of the file that it will be, and with its mode."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    draft = Path(name)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        if path.exists():
            shutil.copymode(path, draft)
        else:
            umask = os.umask(0)
            os.umask(umask)
            draft.chmod(0o666 & ~umask)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _folders(folder: Path) -> list[Path]:
    """Make a folder and those above it; the ones that were not there, the outer first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
