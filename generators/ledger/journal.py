"""All of a set of writes or none: a journal of the old bytes goes first, renames follow, its removal commits."""

from __future__ import annotations

import base64
import json
import os
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from skillgen.kernel.errors import CONFLICT, INTERRUPTED, IO, SkillgenError
from skillgen.kernel.paths import read
from skillgen.kernel.target import Target
from skillgen.ledger import disk
from skillgen.ledger.lock import locked
from skillgen.ledger.state import COMMITTED, DRAFT, JOURNAL, RECEIPTS, check
from skillgen.ledger.threeway import Overlap, transfer


@dataclass(frozen=True)
class Write:
    """One file of a transaction, below the target's root or (`state`) its state folder."""

    path: str
    before: bytes | None
    after: bytes | None
    state: bool = False


@lru_cache(maxsize=512)  # families share files, and every receipt holds them whole
def pack(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def unpack(text: str | None) -> bytes | None:
    return None if text is None else zlib.decompress(base64.b64decode(text))


class Transaction:
    """The steps of one set of writes; every method may be run again after a kill."""

    def __init__(
        self, target: Target, writes: Sequence[Write], folders: Sequence[str], empty: Sequence[str], token: str
    ) -> None:
        self.target = target
        self.writes = writes
        self.folders = folders  # made by this transaction, outermost first
        self.empty = empty  # to be removed after it, innermost first
        self.token = token

    def run(self) -> None:
        """Write everything, or put everything back and raise with exit code 6."""
        journal = self._state(JOURNAL)
        try:
            draft = self._state(DRAFT)
            disk.create(draft, self._dump(), journal)
            disk.replace(draft, journal)
            disk.flush(journal.parent)
            self._write()
            disk.replace(journal, self._state(COMMITTED))
        except BaseException as error:
            self._put_back(error)
        try:
            disk.flush(journal.parent)
            self.finish()
        except OSError:
            pass  # committed: the next command removes what is left over

    def _write(self) -> None:
        for folder in self.folders:
            disk.make_folder(disk.place(self.target.root, folder))
        for write in self.writes:
            path = self._place(write)
            if write.after is not None:
                disk.create(self._aside(write, "new"), write.after, path)
            if write.before is not None:
                disk.keep(path, self._aside(write, "old"))
        for write in self.writes:
            path = self._place(write)
            if write.after is None:
                disk.remove(path)
            else:
                disk.replace(self._aside(write, "new"), path)
        for parent in {self._place(write).parent for write in self.writes}:
            disk.flush(parent)

    def _put_back(self, error: BaseException) -> None:
        try:
            if self._state(COMMITTED).exists():  # interrupted just after the commit
                disk.replace(self._state(COMMITTED), self._state(JOURNAL))
            self.undo()
        except OSError as again:
            raise SkillgenError(
                "not-put-back",
                f"{error or type(error).__name__}, and putting the files back failed too: {again}",
                where=str(self.target.state_dir),
                hint="the old bytes are kept; the next skillgen command on this target puts them back",
                exit_code=IO,
            ) from error
        if isinstance(error, OSError):
            raise disk.failed(error, "nothing was changed: writing failed") from error
        if isinstance(error, KeyboardInterrupt):
            raise SkillgenError("interrupted", "interrupted; nothing was changed", exit_code=INTERRUPTED) from error
        raise error

    def undo(self) -> None:
        """Back to the old bytes, keeping what others have edited since; idempotent."""
        goals = [(write, self._old(write)) for write in self.writes]
        for write, goal in goals:
            path, backup = self._place(write), self._aside(write, "old")
            if disk.read(self._base(write), write.path) != goal:
                if goal is None:
                    disk.remove(path)
                elif goal == write.before and backup.exists():
                    disk.replace(backup, path)
                else:
                    fresh = self._aside(write, "put")
                    disk.remove(fresh)
                    disk.create(fresh, goal, path)
                    disk.replace(fresh, path)
        for write in self.writes:
            for name in ("new", "old", "put"):
                disk.remove(self._aside(write, name))
        for folder in reversed(self.folders):
            disk.drop_folder(disk.place(self.target.root, folder))
        self._close(JOURNAL)

    def finish(self) -> None:
        """What may follow the commit: leftovers, bytecode of removed modules, empty folders; idempotent."""
        for write in self.writes:
            disk.remove(self._aside(write, "old"))
            if write.after is None and not write.state:
                _drop_bytecode(self._place(write))
        for folder in self.empty:
            disk.drop_folder(disk.place(self.target.root, folder))
        self._close(COMMITTED)

    def _close(self, name: str) -> None:
        disk.remove(self._state(DRAFT))
        disk.remove(self._state(name))
        disk.flush(self.target.state_dir)

    def _old(self, write: Write) -> bytes | None:
        """What the file should hold after an undo: the old bytes plus later edits of others."""
        current = disk.read(self._base(write), write.path)
        try:
            return transfer(write.after, write.before, current) if current != write.before else current
        except Overlap as overlap:
            raise SkillgenError(
                "conflict",
                f"{write.path} was edited since an apply was killed, where that apply had patched it",
                where=f"{write.path}:{overlap.line}",
                hint="put this file back as it was (git checkout), then run the command again",
                exit_code=CONFLICT,
            ) from None

    def _base(self, write: Write) -> Path:
        return self.target.state_dir if write.state else self.target.root

    def _place(self, write: Write) -> Path:
        return disk.place(self._base(write), write.path)

    def _aside(self, write: Write, kind: str) -> Path:
        path = PurePosixPath(write.path)
        return disk.place(self._base(write), str(path.with_name(f".{path.name}.{self.token}.{kind}")))

    def _state(self, name: str) -> Path:
        return self.target.state_dir / name

    def _dump(self) -> bytes:
        data = {
            "token": self.token,
            "folders": list(self.folders),
            "empty": list(self.empty),
            "writes": [
                {"path": w.path, "before": pack(w.before), "after": pack(w.after), "state": w.state}
                for w in self.writes
            ],
        }
        return json.dumps(data).encode()


def run(target: Target, writes: Sequence[Write], folders: Sequence[str], empty: Sequence[str]) -> None:
    """Carry out a transaction; the lock is held."""
    (target.state_dir / RECEIPTS).mkdir(exist_ok=True)
    Transaction(target, writes, folders, empty, secrets.token_hex(4)).run()


def recover(target: Target) -> bool:
    """Undo or finish what a killed command left; True if there was something."""
    state = target.state_dir
    check(state)
    if not state.is_dir() or not (_pending(state) or not any(state.glob("receipts/*.json"))):
        return False
    with locked(target):
        return settle(target)


def settle(target: Target) -> bool:
    """`recover` for a holder of the lock."""
    state = target.state_dir
    found = _pending(state)
    try:
        if (state / COMMITTED).exists():
            _load(target, COMMITTED).finish()
        elif (state / JOURNAL).exists():
            _load(target, JOURNAL).undo()
        disk.remove(state / DRAFT)
    except OSError as error:
        raise disk.failed(error, "a killed command could not be undone") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SkillgenError(
            "journal-damaged",
            f"cannot read the journal of a killed command: {error}",
            where=str(state),
            hint="put the target back with git or from its wheel, then remove this folder",
            exit_code=IO,
        ) from error
    return found


def _pending(state: Path) -> bool:
    return any((state / name).exists() for name in (JOURNAL, COMMITTED, DRAFT))


def _load(target: Target, name: str) -> Transaction:
    data: dict[str, Any] = json.loads(read(target.state_dir / name, follow=False))
    writes = [Write(w["path"], unpack(w["before"]), unpack(w["after"]), w["state"]) for w in data["writes"]]
    return Transaction(target, writes, data["folders"], data["empty"], data["token"])


def missing_folders(target: Target, paths: Sequence[str]) -> list[str]:
    """The folders that files to be written need, outermost first."""
    parents = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    missing = [parent for parent in parents if not os.path.lexists(target.root / parent)]
    return sorted(missing, key=lambda folder: (folder.count("/"), folder))


def _drop_bytecode(source: Path) -> None:
    cache = source.parent / "__pycache__"
    if source.suffix == ".py" and not cache.is_symlink():
        for compiled in cache.glob(f"{source.stem}.*.pyc"):
            disk.remove(compiled)
        disk.drop_folder(cache)
