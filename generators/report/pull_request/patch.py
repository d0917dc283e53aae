"""A technique's patch as it is in a target: its families, its files by kind, the configuration that it adds."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import Change
from skillgen.kernel.product import beside

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

KINDS = ("code edited", "code added", "tests", "documentation", "recipes and scripts")
PROSE = (".md", ".mdx", ".rst")


@dataclass(frozen=True)
class Size:
    """How much of the diff is of one kind."""

    kind: str
    files: int
    added: int
    removed: int


@dataclass(frozen=True)
class Applied:
    """What a technique has changed in a target."""

    target: Target
    technique: str
    families: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def paths(self) -> set[str]:
        return {change.path for change in self.changes}

    def sizes(self) -> list[Size]:
        """The diff by kind of file, and in total."""
        package = self.target.relative(self.target.package) + "/"
        found = {name: [c for c in self.changes if _kind(c, package) == name] for name in KINDS}
        found = {name: changes for name, changes in found.items() if changes}
        return [_size(name, changes) for name, changes in [*found.items(), ("all", list(self.changes))]]

    @cached_property
    def fields(self) -> dict[str, list[str]]:
        """Fields that existing dataclasses get, as code, with the classes that get each."""
        found: dict[str, list[str]] = {}
        for change in self.changes:
            if change.before is not None and change.after is not None and change.path.endswith(".py"):
                before = set(_fields(change.before))
                for cls, code in _fields(change.after):
                    if (cls, code) not in before and cls not in found.setdefault(code, []):
                        found[code].append(cls)
        return {code: classes for code, classes in found.items() if classes}


def applied(target: Target, technique: str) -> Applied:
    """The patch of a technique in a target; raises where it is not there, or not known."""
    from skillgen import ledger
    from skillgen.engine.scan import scan
    from skillgen.ledger import disk

    states = [state for state in ledger.status(target) if state.technique == technique]
    if gone := [state.family for state in states if state.state == "missing"]:
        raise _not_applied(target, technique, f"the patch of {', '.join(gone)} is no longer in the tree")
    if not states:
        rows = scan(target, technique=technique)
        if there := [row.family for row in rows if row.outcome.value == "applied"]:
            raise SkillgenError(
                "no-receipt",
                f"the patch of {', '.join(there)} is in the tree, but no receipt that says what stood there before",
                hint=f"apply it with this pack: skillgen apply {technique} DIR on a tree without it",
            )
        raise _not_applied(target, technique, f"{technique} is not applied here")
    space = ledger.Workspace(target)
    paths = sorted({path for state in states for path in space.remove((technique, state.family)).files})
    changes = [Change(path, space.read(path), disk.read(target.root, path)) for path in paths]
    families = tuple(state.family for state in states)
    return Applied(target, technique, families, tuple(change for change in changes if change.before != change.after))


def eval_command(target: Target, technique: str) -> str:
    """`skillgen eval` of a target; with what its suite imports beside the target."""
    from skillgen.engine.suites import suite_of

    core = beside()
    needed = core.module in suite_of(technique).NEEDED and target.product != core.name
    option = [f"--{core.option}", "DIR"] if needed else []
    return shlex.join(["skillgen", "eval", technique, str(target.root), *option])


def _not_applied(target: Target, technique: str, message: str) -> SkillgenError:
    hint = f"skillgen apply {technique} {target.root}, then {eval_command(target, technique)} --report REPORT"
    return SkillgenError("not-applied", message, where=str(target.root), hint=hint)


def _kind(change: Change, package: str) -> str:
    if change.path.startswith("tests/"):
        return "tests"
    if change.path.endswith(PROSE):
        return "documentation"
    if change.path.startswith(package):
        return "code edited" if change.before is not None else "code added"
    return "recipes and scripts"


def _size(kind: str, changes: list[Change]) -> Size:
    from skillgen.edits import unified_diff

    added = removed = 0
    for change in changes:
        body = unified_diff([change]).partition("\n@@ ")[2].split("\n")[1:]
        added += sum(line.startswith("+") for line in body)
        removed += sum(line.startswith("-") for line in body)
    return Size(kind, len(changes), added, removed)


def _fields(content: bytes) -> Iterator[tuple[str, str]]:
    """(class, field as code) of every dataclass in a module."""
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            yield from ((node.name, ast.unparse(item)) for item in node.body if isinstance(item, ast.AnnAssign))
