"""Hashes over the code that claims speak of, one per family. A report carries them. Needs no torch."""

from __future__ import annotations

import hashlib
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from skillgen.kernel.closure import Code
from skillgen.kernel.errors import SkillgenError

TOLD = "pull_request.md.j2"  # what a pull request says is put into no target
# What no technique imports and every patch and run goes through.
EVERY = ("generators/engine/plan.py", "generators/launch/environment.py", "generators/launch/upstream.py",
         "evals/kernel/worker.py")  # fmt: skip


def stamp(technique: str, target_root: str | Path, families: Iterable[str]) -> dict[str, Any]:
    """What a report says of the code behind it: the hashes, and whether the target's patch is by that code."""
    hashes = Hashes(technique)
    told = {family: hashes.of(family) for family in sorted({*families} - {"all"})}
    return {"sha256": hashes.shared, "families": told, "patch": patch_state(technique, target_root)}


@dataclass(frozen=True)
class Hashes:
    """Of a technique's code, in a checkout or as installed: what all of its families share, and what is one's own."""

    technique: str
    pack: Path | None = None

    @cached_property
    def _code(self) -> Code:
        return Code(self.pack)

    @cached_property
    def _all(self) -> set[str]:
        """What lies in the technique's folders."""
        name = self.technique.replace("-", "_")
        code = {file for top in ("generators/techniques", "evals") for file in self._code.below(f"{top}/{name}")}
        return code | self._code.below(f"templates/{name}", "**/*") - {f"templates/{name}/{TOLD}"}

    @cached_property
    def families(self) -> dict[str, set[str]]:
        """By family: the modules of its name, and the templates whose name begins with it and a dot."""
        stems = {file: Path(file).name.partition(".")[0] for file in self._all}
        modules = {file for file in self._all if file.split("/")[-2] == "families" and stems[file][0] != "_"}
        names = {stems[file] for file in modules}
        mine = {file for file in self._all if stems[file] in names and (file in modules or file.endswith(".j2"))}
        return {name: {file for file in mine if stems[file] == name} for name in sorted(names)}

    @cached_property
    def shared_files(self) -> set[str]:
        """What a claim of any family rests on; empty where the pack has no such technique."""
        own = self._all.difference(*self.families.values())
        return self._code.closure([*own, *filter(self._code.has, EVERY)]) if own else set()

    def files(self, family: str) -> set[str]:
        """What the claims of one family rest on."""
        return self.shared_files | self._code.closure(self.families.get(family, ()))

    @cached_property
    def shared(self) -> str:
        """The hash of what all families rest on."""
        return self._hash(self.shared_files)

    def of(self, family: str) -> str:
        """The hash of what one family rests on."""
        return self._hash(self.files(family)) if family in self.families else self.shared

    def are(self, code: dict[str, Any] | None, families: Iterable[str]) -> bool:
        """Whether a report's code is the code as it is, for these families."""
        told = (code or {}).get("families") or {}
        return bool(told) and all(told.get(family) == self.of(family) for family in families)

    def _hash(self, files: set[str]) -> str:
        total = hashlib.sha256()
        for name in sorted(files):
            total.update(f"{name}\0{content(self._code.text(name), name.endswith('.py'))}\0".encode())
        return total.hexdigest()


@cache
def content(text: str, python: bool) -> str:
    """A file's text as far as it counts: neither line endings nor blank lines nor, in Python, comments."""
    lines = text.split("\n")
    if python:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def patch_state(technique: str, target_root: str | Path) -> str:
    """`current` if this pack would write the target's patch as it stands; else why that cannot be said."""
    from skillgen.engine import plan as engine
    from skillgen.kernel.target import discover
    from skillgen.ledger import receipts

    try:
        target = discover(target_root)
        families = [family for name, family in receipts.load(target) if name == technique]
        if not families:
            return "no receipt of the patch"
        changes = engine.plan_changes(target, technique, families, {}, lint=False).changes
    except SkillgenError as error:
        return f"{error.code}: {error.message}"
    return f"differs in {', '.join(change.path for change in changes)}" if changes else "current"
