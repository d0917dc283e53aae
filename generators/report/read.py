"""Read a report back: only what this version of the pack wrote, and only if it agrees with itself."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from skillgen.kernel import paths
from skillgen.kernel.errors import IO, USAGE, SkillgenError
from skillgen.kernel.form import unlike
from skillgen.kernel.product import beside
from skillgen.report.plots import PLOTS
from skillgen.report.rows import STATUSES, costs, split

SCHEMA = 1
NAME = "report.json"
NUMBER = (int, float)
WORD = (str, type(None))
PATCHED = {"product": str, "version": WORD, "kind": str, "commit": WORD, "families": {"*": str}}
TARGET = {"path?": WORD, "version?": WORD, "commit?": WORD, "runtime?": WORD}
ENVIRONMENT = {
    "versions?": {"*": str},
    "variables?": {"*": str},
    "platform?": str,
    "cpu?": WORD,
    "vector?": WORD,  # reports of before have neither this nor the next
    "blas?": WORD,
    "cores?": (int, type(None)),
    "threads_per_rank?": int,
    "gpu?": [str],
    "hosts?": [str],
    "target?": (TARGET, type(None)),
}
RECORD: dict[str, Any] = {
    "technique": str,
    "command": str,
    "target": str,
    "verdict": str,
    "backend": str,
    "finished": str,
    "pack_version": str,
    "nproc": int,
    "seconds": NUMBER,
    "ok": bool,
    "rows": list,
    "families": [str],
    "kinds": [str],
    "stand_ins": [str],
    "gains": [str],
    "counts": {"*": int},
    "environment": ENVIRONMENT,
    "patched": ({}, PATCHED),
    "code?": {"sha256": WORD, "families?": {"*": str}, "patch": str},
    "baseline?": WORD,
    "mutate": WORD,
}
ROW: dict[str, Any] = {
    "family": str,
    "variant": str,
    "kind": str,
    "name": str,
    "reason": str,
    "seconds": NUMBER,
    "checks?": {"*": list},
    "numbers?": {"*": list},
    "traceback?": str,
}


def judged(rows: list[dict[str, Any]]) -> tuple[dict[str, int], list[str], bool]:
    """Rows by status, the families that nothing was proven for, and whether all is well."""
    counts = Counter(row["status"] for row in rows)
    proven = {row["family"] for row in rows if row["status"] == "passed"}
    unproven = sorted({row["family"] for row in rows} - proven - {"all"})  # skipped as a whole
    ok = counts["failed"] == 0 and counts["passed"] > 0 and not unproven
    return {status: counts[status] for status in STATUSES}, unproven, ok


def verdict(record: dict[str, Any]) -> str:
    """The line that a report's rows earn."""
    counts, unproven, ok = judged(record["rows"])
    told = ", ".join(f"{number} {status}" for status, number in counts.items())
    about = f" for {', '.join(unproven)}" if counts["passed"] and not counts["failed"] else ""
    word = "PASS" if ok else "FAIL" if counts["failed"] else f"NOTHING PROVEN{about}"
    line = f"{word}: {told} on {record['nproc']} ranks ({record['backend']}), {record['seconds']:g} s"
    return f"{line}; the runtime was broken on purpose ({record['mutate']})" if record["mutate"] else line


def read(place: str | Path) -> dict[str, Any]:
    """The record in a folder that `--report` named, or in its JSON file.

    Raises:
        SkillgenError: there is none, or it is not what this version writes; `where` is the file.
    """
    path = Path(place)
    path = path / NAME if path.is_dir() else path
    try:
        record = parse(paths.read(path))
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
    return dict(record)


def parse(data: bytes) -> Any:
    """The value that a report's JSON says; ValueError for what no report of ours holds and no reader could show."""

    def number(text: str) -> int | float:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text[:20]} is no number that JSON has, or too large a one")
        return value if any(sign in text for sign in ".eE") else int(text)

    value = json.loads(data.decode("utf-8"), parse_float=number, parse_int=number, parse_constant=number)
    json.dumps(value, ensure_ascii=False).encode()  # half a character, as in an escape, cannot be printed
    return value


def fault(record: Any, *, kept: bool = False) -> str:
    """What is wrong with a record, in one line; empty if nothing is. One that the card has `kept` is reduced."""
    schema = record.get("schema") if isinstance(record, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        return f"no report of an eval: it has no schema number, and {SCHEMA} is read here"
    if schema != SCHEMA:
        return f"its schema is {schema}, and {SCHEMA} is read here"
    form = RECORD | {"environment": ENVIRONMENT | {"hosts?": int}} if kept else RECORD
    if place := unlike(record, form):
        return f"{place!r} is missing or of another type"
    if not _runs(record["command"]):
        return "'command' is no command line"
    for number, row in enumerate(record["rows"]):
        if wrong := _row_fault(row):
            return f"rows[{number}]: {wrong}"
    counts, _, ok = judged(record["rows"])
    if (record["counts"], record["ok"]) != (counts, ok):
        return f"it says {record['counts']}, ok {record['ok']}, and its rows say {counts}, ok {ok}"
    if record["verdict"] != (earned := verdict(record)):
        return f"its verdict is {record['verdict']!r}, and its rows say {earned!r}"
    return ""


def _row_fault(row: Any) -> str:
    if not isinstance(row, dict):
        return "no object"
    for name in ("checks", "numbers"):
        if unlike(row.get(name, {}), {"*": list}):
            return f"{name!r} has another form"
    if place := unlike(row, ROW):
        return f"{place!r} is missing or of another type"
    if row.get("status") not in STATUSES:
        return f"status {row.get('status')!r} is none of {', '.join(STATUSES)}"
    checks = row.get("checks", {}).values()
    if not all(len(pair) == 2 and not unlike(pair, [NUMBER]) for pair in checks):
        return "'checks' has another form"
    drawn = {plot.measure for plot in PLOTS} | {"busy ms"}
    measured = costs({"rows": [row]}) and [v for name, v in row["numbers"].items() if split(name)[0] in drawn]
    if not all(values and not unlike(values, [NUMBER]) for values in measured):
        return "'numbers' has a cost that is no number per rank"
    over = any(not value <= limit for value, limit in checks)
    return "passed, with a check over its limit" if over and row["status"] == "passed" else ""


def _runs(command: str) -> bool:
    """Whether a shell could take it, and the option that readers look for has its value."""
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return bool(words) and words[-1] != f"--{beside().option}"


def _wrong(code: str, message: str, path: Path) -> SkillgenError:
    hint = "run the eval again with --report; a report is never edited by hand"
    return SkillgenError(code, message, where=str(path), hint=hint, exit_code=USAGE)
