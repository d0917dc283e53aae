"""The target and its receipts as they would be: changes gather in memory, `flush` writes them in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

from skillgen.kernel.errors import CONFLICT, SkillgenError
from skillgen.kernel.target import Target
from skillgen.ledger import checks, disk, journal, record
from skillgen.ledger.receipts import Entry, Key, Receipt, file_name, holders, load
from skillgen.ledger.threeway import SUBSTANTIAL, Overlap, compose, transfer, vanished

Replay = Callable[[str, bytes | None], bytes | None]


@contextmanager
def _conflict(path: str) -> Iterator[None]:
    try:
        yield
    except Overlap as overlap:
        raise SkillgenError(
            "conflict",
            f"{path} was edited at a place that the patch also changed",
            where=f"{path}:{overlap.line}",
            hint="undo that edit (or revert the family applied later), then try again; nothing was changed",
            exit_code=CONFLICT,
        ) from None


class Workspace:
    """Contents and receipts over those on the disk."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.receipts = load(target)
        self._stored = {key: receipt.dump() for key, receipt in self.receipts.items()}
        self._disk: dict[str, bytes | None] = {}
        self._contents: dict[str, bytes | None] = {}
        self._rows = {path: row for receipt in self.receipts.values() for path, row in receipt.rows.items()}
        self._folders = {folder for receipt in self.receipts.values() for folder in receipt.folders}

    def read(self, path: str) -> bytes | None:
        if path not in self._contents:
            self._contents[path] = self._disk[path] = disk.read(self.target.root, path)
        return self._contents[path]

    def changed(self) -> list[str]:
        return [path for path, content in self._contents.items() if content != self._disk[path]]

    def remove(self, key: Key) -> Receipt:
        """Take one family's patch out; the patches of other families in the same files stay."""
        receipt = self.receipts.pop(key)
        for path, entry in receipt.entries.items():
            goal, current = self._goal(entry), self.read(path)
            if not vanished(entry.composed, goal, current):
                self._contents[path] = self._carry(entry.composed, goal, current, path)
            for other in holders(self.receipts.values(), path):
                other.composed = goal or b""
        return receipt

    def state(self, key: Key, path: str) -> str:
        """applied: as we left it; missing: the patch is gone; edited-since: anything else."""
        entry = self.receipts[key].entries[path]
        current = self.read(path)
        if current == entry.composed:
            return "applied"
        others = {other: receipt for other, receipt in self.receipts.items() if other != key}
        if vanished(entry.composed, self._goal(entry, others), current):
            return "missing"
        try:
            without = transfer(entry.composed, self._goal(entry, others), current)
        except Overlap:
            return "edited-since"
        gone = without == current and (current is None or entry.composed != self._goal(entry, others))
        return "missing" if gone else "edited-since"

    def _goal(self, entry: Entry, receipts: Mapping[Key, Receipt] | None = None) -> bytes | None:
        """What we would have written without this entry: the patches of the other families alone."""
        others = holders((self.receipts if receipts is None else receipts).values(), entry.path)
        with _conflict(entry.path):
            return compose(entry.before, [other.after for other in others], entry.composed)

    def add(self, receipt: Receipt, path: str, after: bytes, *, dirty: bool, replay: Replay | None) -> None:
        """Put one file of a new receipt in place; its entry is freed of the patches of other families."""
        current = self.read(path)
        others = holders(self.receipts.values(), path)
        before = self.pristine(path) if others else current
        alone = self._alone(path, before, current, after, replay) if others else after
        for other in others:
            if before != other.before:  # edits since the other apply become part of what a revert leaves
                other.after = self._carry(other.before, other.after, before, path) or other.after
                other.before = before
            if before is None:
                other.after = after
            other.composed = after
        if before != alone:
            receipt.entries[path] = Entry(path, before, alone, after, dirty)
        self._contents[path] = after

    def pristine(self, path: str) -> bytes | None:
        """The file without any patch of ours."""
        first = holders(self.receipts.values(), path)[0]
        return self._carry(first.composed, first.before, self.read(path), path)

    def _alone(
        self, path: str, before: bytes | None, current: bytes | None, after: bytes, replay: Replay | None
    ) -> bytes:
        if before is None:
            return after
        if replay is not None:
            with suppress(SkillgenError):  # it holds on to what the other family wrote
                return replay(path, before) or after
        return self._carry(current, after, before, path, alone=1) or after

    def _carry(
        self, old: bytes | None, new: bytes | None, current: bytes | None, path: str, alone: int = SUBSTANTIAL
    ) -> bytes | None:
        with _conflict(path):
            return transfer(old, new, current, alone=alone)

    def flush(self) -> None:
        """Check everything, then write all of it or nothing (the lock is held)."""
        paths = self.changed()
        self._keep_record(paths)
        paths = self.changed()
        checks.writable(self.target, paths)
        made = journal.missing_folders(self.target, [path for path in paths if self._contents[path] is not None])
        self._own_folders(made)
        writes = [journal.Write(path, self._disk[path], self._contents[path]) for path in paths]
        writes += self._receipt_writes()
        if writes:
            kept = {folder for receipt in self.receipts.values() for folder in receipt.folders}
            empty = sorted(self._folders - kept, key=lambda folder: -folder.count("/"))
            journal.run(self.target, writes, made, empty)

    def _receipt_writes(self) -> list[journal.Write]:
        fresh = {key: receipt.dump() for key, receipt in self.receipts.items()}
        return [
            journal.Write(file_name(key), self._stored.get(key), fresh.get(key), state=True)
            for key in sorted(self._stored.keys() | fresh.keys())
            if self._stored.get(key) != fresh.get(key)
        ]

    def _own_folders(self, made: list[str]) -> None:
        """Every receipt owns the folders of ours that its created files lie in: the last one removes them."""
        ours = self._folders | set(made)
        for receipt in self.receipts.values():
            created = [path for path, entry in receipt.entries.items() if entry.before is None]
            receipt.folders = {str(folder) for path in created for folder in PurePosixPath(path).parents} & ours

    def _keep_record(self, paths: list[str]) -> None:
        """Rows of RECORD for files of ours; the last receipt of a file puts the row back as it was."""
        info = self.target.dist_info()
        name = self.target.relative(info / "RECORD") if info else ""
        text = self.read(name) if info else None
        rows = record.rows(text) if text is not None else {}
        wanted: dict[str, str | None] = {}
        dropped = [path for path in self._rows if not holders(self.receipts.values(), path)]
        for path in dict.fromkeys([*paths, *dropped]):
            before, now = self._rows.get(path, (rows.get(path), rows.get(path)))
            content = self._contents[path]
            if not holders(self.receipts.values(), path):
                if rows.get(path) == now:
                    wanted[path] = before
            elif content is not None and text is not None:
                self._rows[path] = before, record.row(path, content)
                wanted[path] = self._rows[path][1]
        for receipt in self.receipts.values():
            receipt.rows = {path: self._rows[path] for path in receipt.files if path in self._rows}
        if text is not None and wanted:
            self._contents[name] = record.update(text, wanted)
