"""What changed between two reports: verdict, environment, cases, checks, costs; and what of it is worse."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.report.rows import REFERENCES, closeness, facts, label, split

COUNTS = (
    "patches",
    "score_entries",
    "activation bytes",
    "allocator peak bytes",
    "bytes received",
    "inner_bytes",
    "outer_bytes",
)
TIMES = ("step ms", "busy ms", "busy ms of a step", "planning ms")
COSTLY = ("cost", "compare")  # kinds of cases whose numbers are shown when they differ
MOVED = 0.1  # of a check's limit; less is rounding
METHODS = ("count", "contiguous")  # of splitting, with --baseline
UNTOLD = ("finished",)  # differs between any two runs
Rows = list[dict[str, Any]]


def compare(before: dict[str, Any], after: dict[str, Any], *, tolerance: float, times: bool) -> Rows:
    """A row per difference, the worse ones first.

    Worse is: a verdict that is no longer ok; a case that passed and does not any more, or is gone; a new failure; a
    check that is gone from a case, or whose value is over the limit of before; a count of what is judged, or with
    `times` a time, that grew by more than the fraction `tolerance` on the busiest rank.

    Raises:
        SkillgenError: the reports speak of different things.
    """
    _comparable(before, after)
    rows = [*_verdict(before, after), *_environment(before, after)]
    ours, theirs = _cases(before), _cases(after)
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        rows += _case(key, ours.get(key), theirs.get(key), tolerance, times)
    return sorted(rows, key=lambda row: not row["worse"])


def _comparable(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, told in (("technique", dict), ("product", lambda record: record["patched"])):
        one, other = (told(record).get(name) for record in (before, after))
        if one and other and one != other:
            raise SkillgenError(
                "not-comparable",
                f"one report is on the {name} {one}, the other on {other}",
                hint="compare two reports of one technique on one product",
                exit_code=USAGE,
            )


def _row(what: str, name: str, before: Any, after: Any, worse: bool = False, change: float | None = None) -> Any:
    row = {"what": what, "name": name, "before": _rounded(before), "after": _rounded(after)}
    return row | {"change": None if change is None else f"{change:+.1%}", "worse": worse}


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _verdict(before: dict[str, Any], after: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if (before["ok"], before["counts"]) != (after["ok"], after["counts"]):
        yield _row("verdict", "verdict", before["verdict"], after["verdict"], before["ok"] and not after["ok"])


def _environment(before: dict[str, Any], after: dict[str, Any]) -> Iterator[dict[str, Any]]:
    told = []
    for record in (before, after):
        code = {
            f"patched code of {name}": hashed[:12] for name, hashed in record["patched"].get("families", {}).items()
        }
        told.append({name: value for name, value in (facts(record) | code).items() if name not in UNTOLD})
    for name in told[0] | told[1]:
        one, other = (side.get(name) for side in told)
        if one != other:
            yield _row("environment", name, one, other)


def _cases(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Rows by name; the second of a name gets a number."""
    seen: Counter[str] = Counter()
    found = {}
    for row in record["rows"]:
        name = label(row)
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} ({seen[name]})"] = row
    return found


def _case(
    name: str, before: dict[str, Any] | None, after: dict[str, Any] | None, tolerance: float, times: bool
) -> Iterator[dict[str, Any]]:
    one, other = (row and row["status"] for row in (before, after))
    if one != other:
        worse = one == "passed" or other == "failed"
        yield _row("case", name, one, other, worse)
    if before is None or after is None:
        return
    passed = one == other == "passed"
    yield from _checks(name, before.get("checks") or {}, after.get("checks") or {}, passed)
    yield from _numbers(name, before, after, tolerance, times)


def _checks(name: str, before: dict[str, Any], after: dict[str, Any], passed: bool) -> Iterator[dict[str, Any]]:
    for check in before | after:
        one, other = before.get(check), after.get(check)
        was, now = (None if pair is None else f"{pair[0]:.3g} of {pair[1]:.3g}" for pair in (one, other))
        if one is None or other is None:
            yield _row("check", f"{name}: {check}", was, now, worse=passed and other is None)
            continue
        over = one[0] <= one[1] and not other[0] <= one[1]
        if over or one[1] != other[1] or abs(closeness(*one) - closeness(*other)) > MOVED:
            yield _row("check", f"{name}: {check}", was, now, worse=over)


def _numbers(
    name: str, before: dict[str, Any], after: dict[str, Any], tolerance: float, times: bool
) -> Iterator[dict[str, Any]]:
    if before["kind"] not in COSTLY:
        return
    numbers = [row.get("numbers") or {} for row in (before, after)]
    for number in numbers[0] | numbers[1]:
        one, other = (_busiest(held[number]) if number in held else None for held in numbers)
        if one == other:
            continue
        measure, arm = split(number)
        judged = arm not in (*REFERENCES, *METHODS) and measure in (*COUNTS, *(TIMES if times else ()))
        change = _growth(one, other)
        grew = other is None or (change is not None and change > tolerance)
        yield _row("cost", f"{name}: {number}", one, other, judged and grew, change)


def _growth(before: Any, after: Any) -> float | None:
    """As a fraction, from nothing without end; None for what is no number."""
    if not (isinstance(before, int | float) and isinstance(after, int | float)):
        return None
    return after / before - 1 if before else math.inf


def _busiest(values: list[Any]) -> Any:
    """The largest of the ranks, or all that they say where it is no number."""
    if values and all(isinstance(value, int | float) for value in values):
        return max(values)
    return str(values[0]) if values and all(value == values[0] for value in values) else str(values)
