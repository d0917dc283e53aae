"""What each command does: options in, rows out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.cli import found as subcommands
from skillgen.cli.options import names as option_names
from skillgen.cli.output import Result, progress
from skillgen.kernel.errors import IO, USAGE, SkillgenError

if TYPE_CHECKING:
    from skillgen.engine.plan import Planned
    from skillgen.kernel.model import Change, Row
    from skillgen.kernel.target import Target

SCAN_COLUMNS = ("family", "outcome", "plannable", "reason", "evidence")
PLAN_COLUMNS = ("family", "outcome", "edited_code_lines", "changed_lines", "files", "notes")


def run(args: argparse.Namespace) -> Result:
    """Run the command that was asked for."""
    known = COMMANDS.get(args.command)
    return known(args) if known else subcommands.load(args.command).run(args)


def list_(args: argparse.Namespace) -> Result:
    from skillgen.engine import registry

    rows = [{"technique": name, "summary": registry.about(name).SUMMARY} for name in registry.names()]
    return Result(rows, ("technique", "summary"))


def scan(args: argparse.Namespace) -> Result:
    from skillgen.engine.scan import scan

    with progress("reading the tree", quiet=args.json):
        target = _discover(args)
        rows = scan(target, technique=args.technique)
    if args.family:
        _known(args.family, rows)
        rows = [row for row in rows if row.family in args.family]
    columns = SCAN_COLUMNS if len({row.technique for row in rows}) < 2 else ("technique", *SCAN_COLUMNS)
    ready = sum(row.plannable for row in rows)
    message = f"{_describe(target)}: {ready} of {len(rows)} can be patched now"
    return Result([row.as_json() for row in rows], columns, message)


def plan(args: argparse.Namespace) -> Result:
    from skillgen.edits import unified_diff

    target, planned = _plan(args)
    diff = unified_diff(planned.changes)
    message = _idle(planned) if not diff else "nothing was written"
    if args.output and diff:
        _write(args.output, diff)
        message = f"the patch is in {args.output}: git -C {target.root} apply {Path(args.output).resolve()}"
    return Result(_rows(planned), PLAN_COLUMNS, message, diff=diff)


def _write(output: str, diff: str) -> None:
    try:
        Path(output).write_bytes(diff.encode("utf-8", "surrogateescape"))
    except OSError as error:
        hint = "name a file in a folder that is there and can be written"
        raise SkillgenError("io", error.strerror or str(error), where=output, hint=hint, exit_code=IO) from error


def apply(args: argparse.Namespace) -> Result:
    from skillgen.engine import plan as engine

    target, planned = _plan(args)
    with progress("writing", quiet=args.json):
        engine.apply(target, planned, allow_dirty=args.allow_dirty)
    message = f"{len(planned.changes)} files written; undo with: skillgen revert {args.technique} {args.target}"
    return Result(_rows(planned, applied=True), PLAN_COLUMNS, message if planned.changes else _idle(planned))


def status(args: argparse.Namespace) -> Result:
    from skillgen import ledger
    from skillgen.engine import scan as engine

    target = _discover(args)
    rows = [state.as_json() for state in ledger.status(target)]
    known = {(row["technique"], row["family"]) for row in rows}
    for found in _applied(engine.scan(target)):
        if (found.technique, found.family) not in known:
            row = {"technique": found.technique, "family": found.family, "state": "no-receipt", "pack_version": None}
            rows.append({**row, "files": []})
    shown = [{**row, "edited": [f["path"] for f in row["files"] if f["state"] != "applied"]} for row in rows]
    return Result(shown, ("technique", "family", "state", "edited", "pack_version"), "" if rows else "clean")


def revert(args: argparse.Namespace) -> Result:
    from skillgen import ledger
    from skillgen.engine import registry
    from skillgen.engine import scan as engine

    registry.load(args.technique)
    target = _discover(args)
    families = args.family or []
    with progress("reverting", quiet=args.json):
        held = {state.family for state in ledger.status(target) if state.technique == args.technique}
        missing = [family for family in families if family not in held]
        if missing or not held:
            sites = engine.scan(target, technique=args.technique)
            _known(missing, sites)
            if left := [row for row in _applied(sites) if row.family in missing or not families]:
                raise _no_receipt(left)
        found = ledger.revert(target, args.technique, *families)
    rows = [{**state.as_json(), "state": "reverted"} for state in found]
    return Result(rows, ("technique", "family", "state"), "" if rows else "nothing to do: no such patch is applied")


def _applied(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.outcome.value == "applied"]


def _no_receipt(rows: list[Row]) -> SkillgenError:
    families = ", ".join(row.family for row in rows)
    return SkillgenError(
        "no-receipt",
        f"the patch of {families} is in the tree, but no receipt that says what stood there before",
        where="; ".join(row.evidence[0] for row in rows if row.evidence),
        hint="it came with a commit, a copy or a patch file: take it back the same way, e.g. git revert, git apply -R",
    )


def fetch(args: argparse.Namespace) -> Result:
    from skillgen.fetching.fetch import fetch

    with progress(f"fetching {args.spec}", quiet=args.json) as advance:
        got = fetch(args.spec, Path(args.folder), progress=advance)
    checked = "sha256 matches the index" if got.verified else "the source names no sha256"
    message = f"{got.name} {got.version}: {got.files} files in {got.path} ({checked})"
    return Result([got.as_json()], (), message)


def doctor(args: argparse.Namespace) -> Result:
    from skillgen.engine.doctor import rows

    return Result(rows(args.target), ("check", "state", "found", "means"))


def eval_(args: argparse.Namespace) -> Result:
    from skillgen.cli.prove import prove

    return prove(args, _discover(args))


COMMANDS: dict[str, Callable[[argparse.Namespace], Result]] = {
    "list": list_,
    "scan": scan,
    "plan": plan,
    "apply": apply,
    "status": status,
    "revert": revert,
    "fetch": fetch,
    "doctor": doctor,
    "eval": eval_,
}


def _discover(args: argparse.Namespace) -> Target:
    from skillgen.kernel.target import discover

    return discover(args.target)


def _describe(target: Target) -> str:
    return f"{target.product} {target.version or '(version unknown)'}, {target.kind} at {target.root}"


def _known(families: list[str], rows: list[Row]) -> None:
    known = {row.family for row in rows}
    if unknown := [family for family in families if family not in known]:
        raise SkillgenError(
            "unknown-family",
            f"this target has no family called {unknown[0]!r}",
            hint=f"one of: {', '.join(sorted(known)) or 'none'}",
            exit_code=USAGE,
        )


def _plan(args: argparse.Namespace) -> tuple[Target, Planned]:
    from skillgen.engine import plan as engine

    with progress("planning", quiet=args.json):
        target = _discover(args)
        options = {name: getattr(args, name) for name in option_names()}
        _offered(args.technique, options)
        return target, engine.plan_changes(target, args.technique, args.family or [], options, lint=not args.no_lint)


def _offered(technique: str, options: dict[str, Any]) -> None:
    """Refuse an option that the technique does not have, instead of leaving it without effect."""
    from skillgen.engine import registry

    offered = registry.about(technique).OPTIONS
    for name, value in options.items():
        if value is not None and name not in offered:
            others = [f"--{option}" for option in offered]
            hint = f"leave it out; this technique has {', '.join(others) or 'none'}"
            raise SkillgenError("no-such-option", f"{technique} has no option --{name}", hint=hint, exit_code=USAGE)


def _rows(planned: Planned, *, applied: bool = False) -> list[dict[str, Any]]:
    from skillgen.kernel.model import Outcome

    rows = []
    touched = {change.path for change in planned.changes}
    for patch in planned.patches:
        row = replace(patch.row, outcome=Outcome.APPLIED, plannable=False) if applied else patch.row
        rows.append({**row.as_json(), **_counts([change for change in patch.written if change.path in touched])})
    return rows + [{**row.as_json(), **_counts([])} for row in planned.idle]


def _counts(written: list[Change]) -> dict[str, Any]:
    from skillgen.edits import changed_lines

    def lines(changes: list[Change]) -> int:
        return sum(changed_lines(change.before, change.after) for change in changes)

    edited = [change for change in written if change.before is not None]
    code = [change for change in edited if change.path.endswith(".py")]
    return {
        "changed_lines": lines(written),
        "edited_code_lines": lines(code),
        "edited_text_lines": lines(edited) - lines(code),
        "files": [change.path for change in written],
    }


def _idle(planned: Planned) -> str:
    upstream = [row.family for row in planned.idle if row.outcome.value == "upstream"]
    return "nothing to do" + (f": the target has it already for {', '.join(upstream)}" if upstream else "")
