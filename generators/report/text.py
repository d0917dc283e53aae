"""The report as Markdown, for a terminal or a pull request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skillgen.report import comparison
from skillgen.report.rows import costs, facts, family, label, of_kind, of_status, plain, worst


def markdown(record: dict[str, Any]) -> str:
    """The page for a terminal or a pull request."""
    lines = [f"# {record['technique']}", "", record["verdict"], "", *[f"- {text(line)}" for line in record["gains"]]]
    lines += ["", f"    {record['command']}", ""]
    for status, title in (("failed", "Failed"), ("skipped", "Skipped")):
        if chosen := of_status(record, status):
            lines += [f"## {title}", "", *[f"- {text(label(row))}: {text(row['reason'])}" for row in chosen], ""]
    for row in costs(record):
        lines += [f"## Cost: {text(family(row))}, {text(row['name'])}", "", *_cost_table(row), ""]
    for row in of_kind(record, "compare"):
        lines += [f"## Comparison: {text(family(row))}, {text(row['name'])}", ""]
        lines += [*table(comparison.table(row)), ""]
    head = ["family", "kind", "case", "result", "worst of limit", "s"]
    cases = [[family(r), r["kind"], r["name"], r["status"], worst(r), f"{r['seconds']:.2f}"] for r in record["rows"]]
    lines += ["## All cases", "", *table([head, *cases]), "", "## Environment", ""]
    lines += [f"- {name}: {text(value)}" for name, value in facts(record).items()]
    lines += ["", "## Stand-ins", "", *[f"- {text(what)}" for what in record["stand_ins"]], ""]
    return "\n".join(lines)


def table(rows: Iterable[list[str]]) -> list[str]:
    """The lines of a table; the first row is its head."""
    head, *body = rows
    return [f"| {' | '.join(map(text, cells))} |" for cells in (head, ["---"] * len(head), *body)]


def text(value: str) -> str:
    """In one line, and with nothing that Markdown would take for a cell's end or for HTML."""
    return " ".join(value.split()).replace("|", "\\|").replace("<", "&lt;")


def _cost_table(row: dict[str, Any]) -> list[str]:
    ranks = len(next(iter(row["numbers"].values())))
    head = ["", *(f"rank {rank}" for rank in range(ranks))]
    return table([head, *([name, *map(plain, values)] for name, values in row["numbers"].items())])
