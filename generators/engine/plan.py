"""From a technique and families to checked changes, and from those to the disk. Planning writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from skillgen.engine import refusals, registry
from skillgen.engine.scan import rows as scan_rows
from skillgen.kernel.collector import paused
from skillgen.kernel.errors import DRIFT, SkillgenError
from skillgen.kernel.model import AddFile, Change, Edit, FamilyPlan, Outcome, Row
from skillgen.kernel.source import Source

if TYPE_CHECKING:
    from skillgen.kernel.target import Target
    from skillgen.ledger import Patch, Workspace


RENEWED = "renewed-with-the-shared-runtime"  # not asked for; applied by another version of this pack


@dataclass(frozen=True)
class FamilyPatch:
    """One family's row, its plan, and what it does to each file on top of the families before it."""

    row: Row
    plan: FamilyPlan
    changes: tuple[Change, ...]  # a file that is there already as planned has before == after

    @property
    def written(self) -> list[Change]:
        return [change for change in self.changes if change.before != change.after]


@dataclass(frozen=True)
class Planned:
    """The patches of one command, and what all of them together do to the disk."""

    patches: tuple[FamilyPatch, ...]
    changes: tuple[Change, ...]
    idle: tuple[Row, ...]  # families that were asked for and need nothing
    line_length: int


@paused()
def plan_changes(
    target: Target, technique: str, families: Sequence[str], options: Mapping[str, Any], *, lint: bool = True
) -> Planned:
    """Plan the families, every plannable one if none is named; raises on the first that cannot be planned."""
    from skillgen import ledger
    from skillgen.kernel import checks

    module = registry.load(technique)
    ledger.recover(target)
    space = ledger.Workspace(target)
    disk = _Disk(space)
    source = Source(target)  # the rows and the plans are of one reading
    rows = scan_rows(source, technique)
    chosen, idle = _choose(target, technique, rows, families, {f for t, f in space.receipts if t == technique})
    length = checks.line_length(target.root)
    plans = [module.plan(source, row.family, options) for row in chosen]
    outdated = _outdated(space, plans)
    renewed = [row for row in rows if row.family in outdated and row not in chosen]
    chosen += [replace(row, notes=(*row.notes, RENEWED)) for row in renewed]
    plans += [module.plan(source, row.family, options) for row in renewed]
    for plan in plans:  # all earlier patches first: a newer runtime then replaces one that they share
        if plan.edits and (plan.technique, plan.family) in space.receipts:
            space.remove((plan.technique, plan.family))
    patches = [_stage(space, row, plan, length) for row, plan in zip(chosen, plans, strict=True)]
    paths = dict.fromkeys(change.path for patch in patches for change in patch.changes)
    changes = tuple(c for c in (Change(path, disk[path], space.read(path)) for path in paths) if c.before != c.after)
    notes = checks.lint(target.root, changes) if lint and changes else ("ruff-not-run",) if changes else ()
    return Planned(tuple(_noted(patch, notes) for patch in patches), changes, tuple(idle), length)


@paused()
def apply(target: Target, planned: Planned, *, allow_dirty: bool = False) -> None:
    """Write what was planned, all of it or none of it."""
    from skillgen import ledger

    if planned.changes:
        patches = [_ledger_patch(patch, planned.line_length) for patch in planned.patches]
        ledger.commit_all(target, patches, allow_dirty=allow_dirty)


class _Disk(dict[str, "bytes | None"]):
    """What is on the disk, whatever a workspace makes of it later."""

    def __init__(self, space: Workspace) -> None:
        super().__init__()
        self.target = space.target

    def __missing__(self, path: str) -> bytes | None:
        from skillgen.ledger import disk

        self[path] = disk.read(self.target.root, path)
        return self[path]


def _choose(
    target: Target, technique: str, rows: Sequence[Row], families: Sequence[str], ours: set[str]
) -> tuple[list[Row], list[Row]]:
    """The rows to plan, and those that need nothing."""
    by_family = {row.family: row for row in rows if row.outcome is not Outcome.CANDIDATE}
    if not by_family:
        raise refusals.absent(target, technique, registry.about(technique).PRODUCTS)
    if unknown := [family for family in families if family not in by_family]:
        raise refusals.unknown(target, technique, unknown[0], by_family)
    asked = [by_family[family] for family in dict.fromkeys(families)] or list(by_family.values())
    chosen = [row for row in asked if row.plannable or (row.outcome is Outcome.APPLIED and row.family in ours)]
    idle = [row for row in asked if row not in chosen and row.outcome in (Outcome.APPLIED, Outcome.UPSTREAM)]
    refused = [row for row in asked if row not in chosen and row not in idle]
    if refused and (families or not chosen + idle):
        raise refusals.refusal(target, technique, rows, refused, named=bool(families))
    return chosen, idle


def _outdated(space: Workspace, plans: Sequence[FamilyPlan]) -> set[str]:
    """Families whose applied patch holds other content of a file that these plans create.

    They are renewed as a whole: what their patch calls in a shared file may have changed along with it.
    """
    new = {edit.path: edit.content.encode() for plan in plans for edit in plan.edits if isinstance(edit, AddFile)}
    return {
        family
        for (technique, family), receipt in space.receipts.items()
        if any(technique == plan.technique for plan in plans)
        for path, entry in receipt.entries.items()
        if entry.before is None and path in new and entry.after != new[path]
    }


def _stage(space: Workspace, row: Row, plan: FamilyPlan, line_length: int) -> FamilyPatch:
    """Make one family's changes in memory, without its own earlier patch and beside those of other families."""
    from skillgen import ledger

    changes = []
    for path in dict.fromkeys(edit.path for edit in plan.edits):
        edits = [edit for edit in plan.edits if edit.path == path]
        before = space.read(path)
        changes.append(Change(path, before, _edited(path, before, edits, line_length, plan.verified)))
    patch = FamilyPatch(row, plan, tuple(changes))
    ledger.stage(space, _ledger_patch(patch, line_length))
    return patch


def _edited(path: str, before: bytes | None, edits: Sequence[Edit], line_length: int, verified: str) -> bytes:
    from skillgen.edits import apply_edits

    new = [edit for edit in edits if isinstance(edit, AddFile)]
    if new:
        content = new[0].content.encode()
        if before is not None and before.replace(b"\r\n", b"\n") != content:
            raise SkillgenError(
                "file-exists",
                f"the patch would create {path}, which is there with other content",
                where=path,
                hint="move it away, or revert the patch that created it",
            )
        return content if before is None else before
    if before is None:
        hint = "use a supported version, or put the file back"
        raise SkillgenError("file-missing", f"{path} is not there", where=path, hint=hint, exit_code=DRIFT)
    return apply_edits(before, edits, path=path, line_length=line_length, verified=verified)


def _ledger_patch(patch: FamilyPatch, line_length: int) -> Patch:
    from skillgen import ledger
    from skillgen.kernel import resources

    def replay(path: str, content: bytes | None) -> bytes | None:
        edits = [edit for edit in patch.plan.edits if edit.path == path]
        return _edited(path, content, edits, line_length, patch.plan.verified)

    return ledger.Patch(patch.plan.technique, patch.plan.family, resources.version(), patch.changes, replay)


def _noted(patch: FamilyPatch, notes: Sequence[str]) -> FamilyPatch:
    merged = tuple(dict.fromkeys([*patch.row.notes, *patch.plan.notes, *notes]))
    return replace(patch, row=replace(patch.row, notes=merged))
