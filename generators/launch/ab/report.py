"""The report of an A/B run: report.json and report.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skillgen.launch.ab.judge import difference
from skillgen.launch.ab.logs import trainers

SHOWN = 40  # steps in the table; more are in the JSON


def write(record: dict[str, Any], folder: Path) -> None:
    """Both files, in a folder that is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (folder / "report.md").write_text("\n".join(_lines(record)) + "\n", encoding="utf-8")


def _lines(record: dict[str, Any]) -> Iterator[str]:
    yield from (f"# A/B of `{record['flag']}`", "", record["verdict"], "", f"    {record['command']}", "")
    yield from ("## Criteria", "", *[f"- {text}" for text in record["criteria"]], "")
    yield from ("| criterion | result | value | limit |", "|---|---|---|---|")
    for row in record["rows"]:
        value, limit = next(iter(row.get("checks", {}).values()), ("", ""))
        cells = [row["name"], row["status"], *(f"{each:.4g}" if each != "" else "" for each in (value, limit))]
        yield f"| {' | '.join(cells)} |"
    yield ""
    for row in record["rows"]:
        if row["reason"]:
            yield f"- {row['name']}: {row['reason']}"
        if row.get("traceback"):
            yield from ("", *[f"    {line}" for line in row["traceback"].splitlines()])
    arms = record["arms"]
    yield from ("", "## Arms", "", "| | " + " | ".join(arms) + " |", "|---" * (len(arms) + 1) + "|")
    unit = next(iter(arms.values()))["unit"]
    for name, key in (("value", "value"), (f"step time, median, {unit}", "median"), ("peak memory, GB", "memory")):
        yield f"| {name} | {' | '.join(_plain(arm[key]) for arm in arms.values())} |"
    yield f"| steps logged | {' | '.join(str(len(arm['losses'])) for arm in arms.values())} |"
    yield ""
    yield from (f"    {name}: {arm['command']}" for name, arm in arms.items())
    if len(arms) == 2:
        yield from _losses(arms["A"], arms["B"])
    yield from ("", "## Environment", "", *[f"- {name}: {value}" for name, value in record["environment"].items()])
    printed = {title: how.printed for title, how in trainers().items()}
    yield from (
        f"- {product}: {printed[product]}" for product in {arm["product"]: 0 for arm in arms.values()} if product
    )


def _losses(a: dict[str, Any], b: dict[str, Any]) -> Iterator[str]:
    steps = sorted({int(step) for step in (*a["losses"], *b["losses"])})
    some = steps[:: len(steps) // SHOWN + 1]
    yield from ("", "## Losses", "", "| step | loss | A | B | difference |", "|---|---|---|---|---|")
    for step in some:
        one, other = a["losses"].get(step, {}), b["losses"].get(step, {})
        for name in sorted(one.keys() | other.keys()):
            pair = one.get(name), other.get(name)
            off = f"{difference(*pair):.2%}" if None not in pair else ""
            yield f"| {step} | {name} | {_plain(pair[0])} | {_plain(pair[1])} | {off} |"


def _plain(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
