"""Install skills into the folders that agents read: all of them whole, or nothing.

The installers of skills that exist are Node programs, and copy over what a user edited.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillgen.kernel import resources
from skillgen.kernel.errors import REFUSED, USAGE, SkillgenError
from skillgen.kernel.paths import read
from skillgen.ledger.lock import NoLocks, take

SHARED, CLAUDE = ".agents/skills", ".claude/skills"
# The folder below a project, or below the home folder, that each agent reads, as its documentation says.
AGENTS = {
    "amp": SHARED,
    "claude-code": CLAUDE,
    "cline": SHARED,
    "codex": SHARED,
    "cursor": SHARED,
    "gemini-cli": SHARED,
    "github-copilot": SHARED,
    "goose": ".goose/skills",
    "kiro-cli": ".kiro/skills",
    "opencode": SHARED,
    "qwen-code": ".qwen/skills",
    "roo": ".roo/skills",
    "windsurf": ".windsurf/skills",
}
RECORD = ".skillgen.json"  # beside the skills, so that nothing of ours is inside one
LOCK = ".skillgen.lock"
PATIENCE = 30  # seconds that an install waits for another one
WRITTEN = ("absent", "older", "edited", "foreign")  # states of what is replaced
Files = dict[str, str]  # sha256 by path


@dataclass(frozen=True)
class Place:
    """One skill in one agent's folder. `state` is what is there before."""

    skill: str
    folder: Path
    state: str  # absent, current, older, edited, foreign, or linked: to a folder that this install writes anyway

    @property
    def path(self) -> Path:
        return self.folder / self.skill


def names() -> list[str]:
    """The skills of the pack."""
    return sorted(path.parent.name for path in resources.path("skills").glob("*/SKILL.md"))


def install(skills: Sequence[str], agents: Sequence[str], dest: Path, *, force: bool = False) -> list[dict[str, Any]]:
    """Copy skills below `dest`; refuse before anything is written if one is in the way. One row per folder written."""
    skills = list(dict.fromkeys(skills)) or names()
    if unknown := [skill for skill in skills if skill not in names()]:
        hint = f"one of: {', '.join(names())}"
        raise SkillgenError("unknown-skill", f"no skill is called {unknown[0]!r}", hint=hint, exit_code=USAGE)
    if not dest.is_dir():
        hint = "make the folder first, or name another with --dest DIR"
        raise SkillgenError("no-such-folder", f"{dest} is no folder", where=str(dest), hint=hint, exit_code=USAGE)
    readers: dict[Path, list[str]] = {}
    for agent in agents or [agent for agent, folder in AGENTS.items() if folder in (SHARED, CLAUDE)]:
        folder = _real(dest / AGENTS[agent])  # two agents' folders may be one, by a link
        readers.setdefault(folder, []).append(agent)
    targets = {folder / skill for folder in readers for skill in skills}

    def look() -> list[Place]:
        places = [_place(skill, folder, targets) for folder in readers for skill in skills]
        if not force:
            _refuse([place for place in places if place.state in ("edited", "foreign")])
        return places

    places = look()
    if _pending(places):
        with alone(readers):
            places = look()  # another install may have been in between
            _write([place for place in places if place.state in WRITTEN])
            _remember(places)
    said = {"absent": "installed", "current": "unchanged", "older": "updated", "linked": "linked"}
    return [
        {
            "skill": place.skill,
            "agents": readers[place.folder],
            "path": str(place.path),
            "state": said.get(place.state, "replaced"),
        }
        for place in places
    ]


def _real(folder: Path) -> Path:
    """Where a folder is, or can be made; refused if a file, a loop of links or a link to nothing is in the way."""
    for path in (folder, *folder.parents):
        if path.is_dir():
            return folder.resolve()
        if os.path.lexists(path):
            raise SkillgenError(
                "in-the-way",
                f"{path} is {'a link that leads to no folder' if path.is_symlink() else 'no folder'}",
                where=str(path),
                hint="nothing was written; move it away, or name the agents to install for with --agent NAME",
                exit_code=REFUSED,
            )
    return folder.resolve()


def _place(skill: str, folder: Path, targets: set[Path]) -> Place:
    path = folder / skill
    if not os.path.lexists(path):
        return Place(skill, folder, "absent")
    if path.is_symlink() and os.path.exists(path) and path.resolve() in targets:
        return Place(skill, folder, "linked")
    there = digests(path, path.rglob("*")) if path.is_dir() else {}
    if there == _ours(skill):
        return Place(skill, folder, "current")
    known = _record(folder).get(skill)
    if path.is_symlink() or not isinstance(known, dict):
        return Place(skill, folder, "foreign")
    return Place(skill, folder, "older" if there == known.get("files") else "edited")


def _refuse(places: Sequence[Place]) -> None:
    if places:
        edited = places[0].state == "edited"
        raise SkillgenError(
            "edited-skill" if edited else "foreign-skill",
            f"{places[0].path} "
            + ("was edited after its installation" if edited else "is there, and not from this pack"),
            where="; ".join(str(place.path) for place in places),
            hint="nothing was written; --force replaces what is there, --skill NAME installs others",
            exit_code=REFUSED,
        )


def digests(folder: Path, paths: Iterable[Path]) -> Files:
    """The sha256 of every file, by its place in the folder."""
    files = (path for path in paths if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _ours(skill: str) -> Files:
    """The files of a skill of the pack, without what an editor or Python left there."""
    source = resources.path("skills") / skill
    found = digests(source, source.rglob("*"))
    return {name: sha for name, sha in found.items() if not re.search(r"(^|/)(\.|__pycache__/)", name)}


def _write(places: Sequence[Place]) -> None:
    """Copy beside each destination, then swap by renames; what was there comes back if a copy or a swap fails."""
    done: list[tuple[Path, Path, Path]] = []
    with ExitStack() as stack:
        scratch = {folder: stack.enter_context(_beside(folder)) for folder in {place.folder for place in places}}
        for place in places:
            _copy(place.skill, scratch[place.folder] / "new" / place.skill)
        try:
            for place in places:
                old = scratch[place.folder] / f"old-{place.skill}"
                new = scratch[place.folder] / "new" / place.skill
                done.append((place.path, old, new))
                if os.path.lexists(place.path):
                    place.path.rename(old)
                new.rename(place.path)
        except BaseException:
            for path, old, new in reversed(done):
                if not new.exists():
                    path.rename(new)
                if os.path.lexists(old):
                    old.rename(path)
            raise


def _copy(skill: str, to: Path) -> None:
    for name in _ours(skill):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(resources.path("skills") / skill / name, to / name)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A scratch folder on the same file system."""
    scratch = Path(tempfile.mkdtemp(prefix=".skillgen-", dir=folder))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def alone(folders: Iterable[Path]) -> Iterator[None]:
    """Keep other installs out of the folders, and take away the scratch folders of those that were killed."""
    with ExitStack() as stack:
        for folder in sorted(folders):
            folder.mkdir(parents=True, exist_ok=True)
            if stack.enter_context(_held(folder / LOCK)):
                for left in folder.glob(".skillgen-*"):
                    shutil.rmtree(left, ignore_errors=True)
        yield


@contextmanager
def _held(lock: Path) -> Iterator[bool]:
    """Hold a lock file; False where the file system has no locks."""
    fd, end = None, time.monotonic() + PATIENCE
    while fd is None:
        try:
            fd = take(lock)
        except NoLocks:
            break
        except BlockingIOError:
            if time.monotonic() > end:
                message, hint = f"another install writes to {lock.parent}", "wait for it to end, then run this again"
                raise SkillgenError("locked", message, where=str(lock.parent), hint=hint) from None
            time.sleep(0.05)
    try:
        yield fd is not None
    finally:
        lock.unlink(missing_ok=True)
        if fd is not None:
            os.close(fd)


def _record(folder: Path) -> dict[str, Any]:
    try:
        known = json.loads(read(folder / RECORD))["skills"]
    except (OSError, SkillgenError, ValueError, KeyError, TypeError):
        return {}
    return known if isinstance(known, dict) else {}


def _pending(places: Sequence[Place]) -> bool:
    """Whether there is anything to write."""
    return any(place.state in WRITTEN for place in places) or bool(_records(places))


def _remember(places: Sequence[Place]) -> None:
    """Note what was written, by which an edit is told from an older version."""
    for folder, known in _records(places).items():
        text = json.dumps({"skills": known}, indent=1, sort_keys=True) + "\n"
        with _beside(folder) as scratch:
            (scratch / RECORD).write_text(text, encoding="utf-8")
            (scratch / RECORD).rename(folder / RECORD)


def _records(places: Sequence[Place]) -> dict[Path, dict[str, Any]]:
    """The records that do not say yet what is, or will be, in their folder."""
    version, found = resources.version(), {}
    for folder in {place.folder for place in places}:
        ours = [place.skill for place in places if place.folder == folder and place.state != "linked"]
        before = _record(folder)
        known = before | {skill: {"version": version, "files": _ours(skill)} for skill in ours}
        if known != before:
            found[folder] = known
    return found
