"""Read a report back: only what this version of the pack wrote, and only if it agrees with itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skillgen.errors import IO, USAGE, SkillgenError

from .report_rows import STATUSES

SCHEMA = 1
NAME = "report.json"
RECORD = {
    "technique": str,
    "command": str,
    "verdict": str,
    "backend": str,
    "finished": str,
    "nproc": int,
    "seconds": (int, float),
    "ok": bool,
    "rows": list,
    "families": list,
    "kinds": list,
    "stand_ins": list,
    "gains": list,
    "counts": dict,
    "environment": dict,
    "patched": dict,
    "mutate": (str, type(None)),
}
ROW = {"family": str, "variant": str, "kind": str, "name": str, "reason": str, "seconds": (int, float)}


def judged(rows: list[dict[str, Any]]) -> tuple[dict[str, int], list[str], bool]:
    """Rows by status, the families that nothing was proven for, and whether all is well."""
    counts = Counter(row["status"] for row in rows)
    proven = {row["family"] for row in rows if row["status"] == "passed"}
    unproven = sorted({row["family"] for row in rows} - proven - {"all"})  # skipped as a whole
    ok = counts["failed"] == 0 and counts["passed"] > 0 and not unproven
    return {status: counts[status] for status in STATUSES}, unproven, ok


def read(place: str | Path) -> dict[str, Any]:
    """The record in a folder that `--report` named, or in its JSON file.

    Raises:
        SkillgenError: there is none, or it is not what this version writes; `where` is the file.
    """
    path = Path(place)
    path = path / NAME if path.is_dir() else path
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = f"name a folder that `skillgen eval --report` wrote, or its {NAME}"
        raise SkillgenError("no-report", f"no such report: {path}", where=str(path), hint=hint, exit_code=IO) from None
    except ValueError as error:
        raise _wrong("report-damaged", f"not JSON: {error}", path) from None
    except RecursionError:
        raise _wrong("report-damaged", "it is nested too deeply for a report", path) from None
    if isinstance(record, dict) and record.get("kind") == "ab":
        message, hint = "the report of an A/B run (skillgen ab), not of an eval", "its page is the report.md beside it"
        raise SkillgenError("report-foreign", message, where=str(path), hint=hint, exit_code=USAGE)
    if wrong := fault(record):
        raise _wrong("report-foreign" if "schema" in wrong else "report-damaged", wrong, path)
    return record


def fault(record: Any) -> str:
    """What is wrong with a record, in one line; empty if nothing is."""
    schema = record.get("schema") if isinstance(record, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        return f"no report of an eval: it has no schema number, and {SCHEMA} is read here"
    if schema != SCHEMA:
        return f"its schema is {schema}, and {SCHEMA} is read here"
    for name, kind in RECORD.items():
        if name not in record or not _is(record[name], kind):
            return f"{name!r} is missing or of another type"
    for number, row in enumerate(record["rows"]):
        if wrong := _row_fault(row):
            return f"rows[{number}]: {wrong}"
    counts, _, ok = judged(record["rows"])
    if (record["counts"], record["ok"]) != (counts, ok):
        return f"it says {record['counts']}, ok {record['ok']}, and its rows say {counts}, ok {ok}"
    return ""


def _row_fault(row: Any) -> str:
    if not isinstance(row, dict):
        return "no object"
    for name, kind in ROW.items():
        if name not in row or not _is(row[name], kind):
            return f"{name!r} is missing or of another type"
    if row.get("status") not in STATUSES:
        return f"status {row.get('status')!r} is none of {', '.join(STATUSES)}"
    forms: dict[str, Callable[[Any], bool]] = {"checks": _pair, "numbers": lambda value: isinstance(value, list)}
    for name, right in forms.items():
        held = row.get(name, {})
        if not isinstance(held, dict) or not all(map(right, held.values())):
            return f"{name!r} has another form"
    over = any(not value <= limit for value, limit in row.get("checks", {}).values())
    return "passed, with a check over its limit" if over and row["status"] == "passed" else ""


def _pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(_is(part, (int, float)) for part in value)


def _is(value: Any, kind: Any) -> bool:
    """Whether JSON's types agree; true and false are no numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _wrong(code: str, message: str, path: Path) -> SkillgenError:
    hint = "run the eval again with --report; a report is never edited by hand"
    return SkillgenError(code, message, where=str(path), hint=hint, exit_code=USAGE)
