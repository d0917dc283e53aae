"""The report as one HTML page that needs nothing beside it."""

from __future__ import annotations

from typing import Any

from skillgen.report import comparison
from skillgen.report.plots import figures
from skillgen.report.rows import closeness, facts, family, grouped, label, of_kind, of_status, short, worst

SHOWN = ("target", "commit", "cpu", "gpu", "finished")  # facts that stand in one line


def page(record: dict[str, Any]) -> str:
    """Render the template; whatever the record holds is escaped."""
    import jinja2
    from markupsafe import Markup

    from skillgen.kernel import resources

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.path("templates/report")),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"family": family, "label": label, "worst": worst, "short": short}
    drawn = [(row, Markup("\n".join(plots))) for row in record["rows"] if (plots := _figures(row))]
    told = facts(record)
    return environment.get_template("page.html.j2").render(
        record=record,
        facts=told,
        about="; ".join(told[name] for name in SHOWN if name in told),
        failed=of_status(record, "failed"),
        skipped=grouped(of_status(record, "skipped"), "reason"),
        passed=grouped(of_status(record, "passed"), "family", "variant", "kind"),
        drawn=drawn,
        compared=[(row, comparison.table(row)) for row in of_kind(record, "compare")],
        checks=_checks,
        numbers=_numbers,
    )


def _figures(row: dict[str, Any]) -> list[str]:
    return figures(row) if row.get("numbers") else []


def _checks(row: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Name, value, limit and the share of the limit that is used; the check that is worst off comes first."""
    checks = (row.get("checks") or {}).items()
    return [
        (name, short(value), short(limit), "over" if not value <= limit else f"{closeness(value, limit):.0%}")
        for name, (value, limit) in sorted(checks, key=lambda check: -closeness(*check[1]))
    ]


def _numbers(row: dict[str, Any]) -> tuple[list[str], list[tuple[str, list[str], int]]]:
    """Heads, and per number its values; where all ranks have the same it is told once, across all columns."""
    numbers = row.get("numbers") or {}
    same = {name: len(values) > 1 and all(value == values[0] for value in values) for name, values in numbers.items()}
    ranks = max((len(values) for name, values in numbers.items() if not same[name]), default=1)
    head = (
        [f"rank {rank}" for rank in range(ranks)] if ranks > 1 else ["every rank" if any(same.values()) else "value"]
    )
    return head, [
        (name, list(map(short, values[:1] if same[name] else values)), ranks if same[name] else 1)
        for name, values in numbers.items()
    ]
