"""Where `skillgen mcp` may read and write: in the folders named at its start, and through no link out of them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from skillgen.kernel.checks import SETTINGS, ruff_settings
from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.kernel.paths import given, hard_link, odd
from skillgen.kernel.target import Target, discover
from skillgen.ledger.state import COMMITTED, DRAFT, JOURNAL


class Roots:
    """The folders that the server is confined to."""

    def __init__(self, folders: Sequence[str]) -> None:
        named = [given(folder) for folder in folders]
        for folder in named:
            if not folder.is_dir():
                hint = "name a folder that is there, as seen from where the server starts"
                raise SkillgenError("no-root", f"--root {folder} is no folder", hint=hint, exit_code=USAGE)
        self.folders = [folder.resolve() for folder in named]

    def path(self, text: str) -> Path:
        """The path that an argument means; a relative one starts at the first root."""
        path = self.folders[0] / given(text)
        return self._inside(path.resolve(), path)

    def tree(self, text: str, product: str | None = None) -> tuple[Path, Target | None]:
        """The same of a target, with all that a command on it reads or writes; None if there is no target."""
        path = self.path(text)
        try:
            target = discover(path, product)
        except SkillgenError:
            return path, None
        for place in (target.root, target.package, target.state_dir):
            self._inside(place.resolve(), place)
        for link in (*_links(target.package), *_links(target.state_dir), *(target.root / name for name in SETTINGS)):
            self._inside(link.resolve(), link)
        return path, target

    def lint(self, target: Target) -> None:
        """Refuse a target whose ruff would read settings outside: its messages quote them."""
        if ruff_settings(target.root) is None:
            return
        waiting = [
            Path(parent, name) for parent, _, files in os.walk(target.root) for name in SETTINGS if name in files
        ]
        seen = set()
        while waiting:
            path = waiting.pop()
            real = self._inside(path.resolve(), path)
            if path in seen or not real.is_file():
                continue
            seen.add(path)
            try:
                settings = tomllib.loads(real.read_text(encoding="utf-8"))
                extend = (settings.get("tool", {}).get("ruff", {}) if path.name == SETTINGS[-1] else settings)[
                    "extend"
                ]
                if "$" in extend or extend.startswith("~"):  # ruff fills these in by rules of its own
                    raise ValueError(f"extend = {extend!r}")
            except KeyError:
                continue
            except (ValueError, TypeError, AttributeError) as error:
                raise SkillgenError(
                    "ruff-failed",
                    f"what {path} extends cannot be told: {error}",
                    where=str(path),
                    hint="no_lint goes on without the target's ruff",
                ) from None
            # with ".." after a link, as ruff and as the file system take it
            ways = [folder / extend for folder in (path.parent, real.parent)]
            waiting += [*ways, *(Path(os.path.normpath(way)) for way in ways)]

    def folder(self, text: str) -> Path:
        """The same of a folder whose files are written."""
        path = self.path(text)
        for file in path.glob("*"):
            real = self._inside(file.resolve(), file)
            if real.is_file() and real.stat().st_nlink > 1:
                raise hard_link(file)
            if real.exists() and not (real.is_file() or real.is_dir()):
                raise odd(file)
        return path

    def new_file(self, text: str) -> Path:
        """The same of a file that is to be made."""
        path = self.path(text)
        if path.exists():
            raise SkillgenError("file-exists", f"{path} is there already", where=str(path), hint="name a new file")
        return path

    def _inside(self, path: Path, asked: Path) -> Path:
        if any(path.is_relative_to(folder) for folder in self.folders):
            return path
        through = "" if path == asked else f", where {path} is meant,"
        raise SkillgenError(
            "outside-roots",
            f"{asked}{through} is outside the folders that this server was started for",
            where=str(asked),
            hint=f"it serves {', '.join(map(str, self.folders))}; another --root has to be named at its start",
        )


def unsettled(target: Target) -> bool:
    """Whether a killed command left something that the next one finishes or undoes."""
    return any((target.state_dir / name).exists() for name in (JOURNAL, COMMITTED, DRAFT))


def _links(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        yield from (path for name in (*folders, *files) if (path := Path(parent, name)).is_symlink())
