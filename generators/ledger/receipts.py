"""What is applied: one receipt per technique and family, with all that a revert needs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from skillgen.kernel.errors import IO, USAGE, SkillgenError
from skillgen.kernel.paths import read
from skillgen.kernel.target import Target
from skillgen.ledger.journal import pack, unpack
from skillgen.ledger.state import RECEIPTS, check

FORMAT = 1
Key = tuple[str, str]  # technique, family


def digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


@dataclass
class Entry:
    """One file of one family's patch, as if no other family were applied."""

    path: str
    before: bytes | None  # without any patch of ours; None: we created it
    after: bytes  # with this family's patch alone
    composed: bytes  # as we last wrote it, with the patches of all families
    dirty: bool = False  # it had uncommitted changes, and the user allowed that

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "before_sha256": digest(self.before),
            "after_sha256": digest(self.after),
            "composed_sha256": digest(self.composed),
            "dirty": self.dirty,
            "before": pack(self.before),
            "after": pack(self.after),
            "composed": pack(self.composed) if self.composed != self.after else None,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Entry:
        after = unpack(data["after"])
        if after is None:
            raise ValueError("no patched text")
        return cls(data["path"], unpack(data["before"]), after, unpack(data["composed"]) or after, data["dirty"])


@dataclass
class Receipt:
    """One family's patch: which pack wrote it, its files, the folders it made, and its rows in RECORD."""

    technique: str
    family: str
    pack_version: str
    entries: dict[str, Entry] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    rows: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)  # RECORD: path -> row before, row now

    @property
    def key(self) -> Key:
        return self.technique, self.family

    @property
    def files(self) -> list[str]:
        return sorted(self.entries)

    def dump(self) -> bytes:
        data = {
            "format": FORMAT,
            "technique": self.technique,
            "family": self.family,
            "pack_version": self.pack_version,
            "files": [self.entries[path].as_json() for path in self.files],
            "folders": sorted(self.folders),
            "record_rows": dict(sorted(self.rows.items())),
        }
        return (json.dumps(data, indent=1) + "\n").encode()

    @classmethod
    def parse(cls, data: bytes) -> Receipt:
        raw = json.loads(data)
        if raw["format"] != FORMAT:
            raise ValueError(f"format {raw['format']}, not {FORMAT}")
        entries = [Entry.from_json(entry) for entry in raw["files"]]
        return cls(
            raw["technique"],
            raw["family"],
            raw["pack_version"],
            {entry.path: entry for entry in entries},
            set(raw["folders"]),
            {path: (before, now) for path, (before, now) in raw["record_rows"].items()},
        )


def file_name(key: Key) -> str:
    """Where a receipt lies, relative to the state folder."""
    for name in key:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.]*(-[A-Za-z0-9_.]+)*", name):
            raise SkillgenError("bad-name", f"not a technique or family name: {name!r}", exit_code=USAGE)
    return f"{RECEIPTS}/{key[0]}--{key[1]}.json"


def load(target: Target) -> dict[Key, Receipt]:
    """All receipts of a target."""
    check(target.state_dir)
    found = {}
    for path in sorted(target.state_dir.glob(f"{RECEIPTS}/*.json")):
        try:
            receipt = Receipt.parse(read(path, follow=False))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SkillgenError(
                "receipt-damaged",
                f"cannot read a receipt: {error}",
                where=str(path),
                hint="restore the file, or undo the patch with git and remove the file",
                exit_code=IO,
            ) from error
        found[receipt.key] = receipt
    return found


def holders(receipts: Iterable[Receipt], path: str) -> list[Entry]:
    """The entries for one file, of all the given receipts that have one."""
    return [receipt.entries[path] for receipt in receipts if path in receipt.entries]
