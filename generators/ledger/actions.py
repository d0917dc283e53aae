"""Apply, revert and look: each settles first what a killed command left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import Change
from skillgen.kernel.target import Target
from skillgen.ledger import checks, disk, journal
from skillgen.ledger.lock import locked
from skillgen.ledger.receipts import Key, Receipt, file_name, holders
from skillgen.ledger.state import check
from skillgen.ledger.workspace import Replay, Workspace


@dataclass(frozen=True)
class FileState:
    """One file of a patch: applied, edited-since or missing."""

    path: str
    state: str


@dataclass(frozen=True)
class PatchState:
    """One family's patch: applied (every file), missing (no file has it any more), else edited-since."""

    technique: str
    family: str
    state: str
    pack_version: str
    files: tuple[FileState, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Patch:
    """One family's patch, ready to be written.

    Where the family is applied already, `changes` replace its patch, and their `before` is what `without` returns.
    Files that the plan finds in place (before == after) belong to `changes` too: that is how the last user of a
    shared file is known. `replay(path, content)` makes the family's edits in a file without any patch of ours; it is
    called for files that several families edit.
    """

    technique: str
    family: str
    pack_version: str
    changes: tuple[Change, ...]
    replay: Replay | None = None

    @property
    def key(self) -> Key:
        return self.technique, self.family


def commit(
    target: Target,
    changes: Sequence[Change],
    *,
    technique: str,
    family: str,
    pack_version: str,
    allow_dirty: bool = False,
    replay: Replay | None = None,
) -> Receipt:
    """Write one family's patch, all of it or nothing (see Patch)."""
    patch = Patch(technique, family, pack_version, tuple(changes), replay)
    return commit_all(target, [patch], allow_dirty=allow_dirty)[0]


def commit_all(target: Target, patches: Sequence[Patch], *, allow_dirty: bool = False) -> list[Receipt]:
    """Write several families' patches, each planned on top of those before it: all of them or nothing."""
    for patch in patches:
        file_name(patch.key)
    with _session(target) as space:
        dirty = _dirty(space, [change for patch in patches for change in patch.changes], allow_dirty)
        for patch in patches:
            if patch.changes and patch.key in space.receipts:
                space.remove(patch.key)
        receipts = [stage(space, patch, dirty) for patch in patches]
        space.flush()
        return receipts


def stage(space: Workspace, patch: Patch, dirty: Collection[str] = ()) -> Receipt:
    """Put one family's patch into a workspace, in memory."""
    if not patch.changes:
        return space.receipts.get(patch.key) or Receipt(*patch.key, patch.pack_version)
    if patch.key in space.receipts:
        space.remove(patch.key)
    receipt = Receipt(*patch.key, patch.pack_version)
    for change in patch.changes:
        if change.after is None:
            raise ValueError(f"a patch adds and edits files, it deletes none: {change.path}")
        _planned_for(space, change)
        checks.parses(change.path, change.before)
        checks.parses(change.path, change.after)
        space.add(receipt, change.path, change.after, dirty=change.path in dirty, replay=patch.replay)
    space.receipts[patch.key] = receipt
    return receipt


def revert(target: Target, technique: str, *families: str) -> list[PatchState]:
    """Take out the families' patches, all of them if none is named, or nothing; returns what was there."""
    check(target.state_dir)
    if not target.state_dir.is_dir():
        return []
    with _session(target) as space:
        keys = [key for key in space.receipts if key[0] == technique and (not families or key[1] in families)]
        found = [_state(space, key) for key in keys]
        for key in keys:
            space.remove(key)
        space.flush()
        return found


def without(target: Target, technique: str, family: str) -> dict[str, bytes | None]:
    """The files of one family's patch as they would be after its revert; writes nothing."""
    journal.recover(target)
    space = Workspace(target)
    if (technique, family) not in space.receipts:
        return {}
    return {path: space.read(path) for path in space.remove((technique, family)).files}


def status(target: Target) -> list[PatchState]:
    """Every patch that has a receipt."""
    journal.recover(target)
    space = Workspace(target)
    return [_state(space, key) for key in sorted(space.receipts)]


@contextmanager
def _session(target: Target) -> Iterator[Workspace]:
    try:
        with locked(target):
            journal.settle(target)
            yield Workspace(target)
    except OSError as error:
        raise disk.failed(error, "nothing was changed") from error


def _state(space: Workspace, key: Key) -> PatchState:
    receipt = space.receipts[key]
    files = tuple(FileState(path, space.state(key, path)) for path in receipt.files)
    states = {file.state for file in files}
    state = states.pop() if len(states) == 1 else "edited-since" if states else "applied"
    return PatchState(*key, state, receipt.pack_version, files)


def _dirty(space: Workspace, changes: Sequence[Change], allowed: bool) -> set[str]:
    """Files that would be written and have uncommitted changes which are not ours."""
    paths = [change.path for change in changes if space.read(change.path) not in (None, change.after)]
    try:
        found = checks.uncommitted(space.target, paths)
    except SkillgenError:
        if not allowed:
            raise
        found = paths
    dirty = set()
    for path in found:
        ours = holders(space.receipts.values(), path)
        if not ours or ours[0].composed != space.read(path) or any(entry.dirty for entry in ours):
            dirty.add(path)
    if dirty and not allowed:
        names = checks.filters(space.target)
        without = f"; the checkout's own git filters were not run: {', '.join(names)}" if names else ""
        raise SkillgenError(
            "dirty",
            f"uncommitted changes in {', '.join(sorted(dirty))}",
            where=min(dirty),
            hint=f"commit or stash them, or pass --allow-dirty{without}",
        )
    return dirty


def _planned_for(space: Workspace, change: Change) -> None:
    current = space.read(change.path)
    shared = change.before is None and current == change.after and holders(space.receipts.values(), change.path)
    if current != change.before and not shared:
        raise SkillgenError(
            "stale-plan", f"{change.path} changed since the plan was made", where=change.path, hint="plan again"
        )
