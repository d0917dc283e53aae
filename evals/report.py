"""The report of a run: one JSON, one Markdown page, one HTML page with plots, verdict and failures first."""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from . import comparison, upstream

PLOTS = (
    ("patches, ", "Patches per rank"),
    ("activation bytes, ", "Activation bytes per rank"),
    ("step ms, ", "Step, ms"),
)
COLOURS = ("#8a8f98", "#76b900", "#4c78a8")


def finish(record: dict[str, Any]) -> dict[str, Any]:
    """Add the verdict: `ok`, `counts`, `verdict` (one line), `gains` (a line per cost case: what fell, how far)."""
    rows = record["rows"]
    counts = Counter(row["status"] for row in rows)
    record["counts"] = {status: counts[status] for status in ("passed", "failed", "skipped")}
    proven = {row["family"] for row in rows if row["status"] == "passed"}
    # A family that was skipped as a whole is not proven.
    unproven = sorted({row["family"] for row in rows} - proven - {"all"})
    record["ok"] = counts["failed"] == 0 and counts["passed"] > 0 and not unproven
    record["gains"] = [gain(row) for row in _costs(record) if row["status"] == "passed"]
    record["gains"] += [upstream.gain(row) for row in rows if row["kind"] == upstream.KIND and "numbers" in row]
    told = ", ".join(f"{number} {status}" for status, number in record["counts"].items())
    about = f" for {', '.join(unproven)}" if proven and not counts["failed"] else ""
    word = "PASS" if record["ok"] else "FAIL" if counts["failed"] else f"NOTHING PROVEN{about}"
    record["verdict"] = f"{word}: {told} on {record['nproc']} ranks ({record['backend']}), {record['seconds']:g} s"
    if record["mutate"]:
        record["verdict"] += f"; the runtime was broken on purpose ({record['mutate']})"
    return record


def gain(row: dict[str, Any]) -> str:
    """What sharding saved in a cost case, on the busiest rank."""

    def fell(prefix: str, what: str, scale: float, unit: str) -> str:
        before, after = (max(row["numbers"][f"{prefix}, {arm}"]) for arm in ("replicated", "sharded"))
        return f"{what} {before / scale:,.4g} to {after / scale:,.4g}{unit} ({after / before:.0%})"

    parts = [
        fell("patches", "patches", 1, ""),
        fell("activation bytes", "activations", 1e6, " MB"),
        fell("busy ms", "busy time", 1, " ms"),
    ]
    return f"{_family(row)}, {row['name']}, per rank: {', '.join(parts)}"


def write(record: dict[str, Any], folder: Path) -> None:
    """report.json, report.md and report.html in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(record, indent=1) + "\n")
    (folder / "report.md").write_text(markdown(record))
    (folder / "report.html").write_text(page(record))


def markdown(record: dict[str, Any]) -> str:
    """The page for a terminal or a pull request."""
    lines = [f"# {record['technique']}", "", record["verdict"], "", *[f"- {line}" for line in record["gains"]]]
    lines += ["", f"    {record['command']}", ""]
    for status, title in (("failed", "Failed"), ("skipped", "Skipped")):
        chosen = [row for row in record["rows"] if row["status"] == status]
        if chosen:
            lines += [f"## {title}", "", *[f"- {_label(row)}: {row['reason']}" for row in chosen], ""]
    for row in _costs(record):
        lines += [f"## Cost: {_family(row)}, {row['name']}", "", *_cost_table(row), ""]
    for row in _of_kind(record, "compare"):
        lines += [f"## Comparison: {_family(row)}, {row['name']}", "", *comparison.markdown(row), ""]
    lines += [
        "## All cases",
        "",
        "| family | kind | case | result | worst of limit | s |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        cells = [_family(row), row["kind"], row["name"], row["status"], worst(row), f"{row['seconds']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Environment", ""]
    lines += [f"- {name}: {_plain(value)}" for name, value in record["environment"].items()]
    lines += ["", "## Stand-ins", "", *[f"- {what}" for what in record["stand_ins"]], ""]
    return "\n".join(lines)


def worst(row: dict[str, Any]) -> str:
    """The check that came closest to its limit."""
    checks = row.get("checks") or {}
    if not checks:
        return ""
    name, (value, limit) = max(checks.items(), key=lambda check: _closeness(*check[1]))
    return f"{name} {value:.2g} of {limit:.2g}"


def page(record: dict[str, Any]) -> str:
    """One self-contained HTML page."""
    colour = "#3b7d00" if record["ok"] else "#b00020"
    body = [
        f"<h1>{escape(record['technique'])}</h1>",
        f'<p style="color:{colour};font-weight:bold">{escape(record["verdict"])}</p>',
    ]
    body += [f"<p>{escape(line)}</p>" for line in record["gains"]]
    body.append(f"<pre>{escape(record['command'])}</pre>")
    for status, title in (("failed", "Failed"), ("skipped", "Skipped")):
        chosen = [row for row in record["rows"] if row["status"] == status]
        if chosen:
            body.append(f"<h2>{title}</h2><ul>")
            body += [f"<li><b>{escape(_label(row))}</b>: {escape(row['reason'])}</li>" for row in chosen]
            body.append("</ul>")
    for row in _costs(record):
        body.append(f"<h2>Cost: {escape(_family(row))}, {escape(row['name'])}</h2>")
        body += [bars(title, _series(row, prefix)) for prefix, title in PLOTS]
    for row in _of_kind(record, "compare"):
        body.append(f"<h2>Comparison: {escape(_family(row))}, {escape(row['name'])}</h2><div><table>")
        for number, cells in enumerate(comparison.table(row)):
            body.append("<tr>" + "".join(f"<{'td' if number else 'th'}>{escape(cell)}" for cell in cells) + "</tr>")
        body.append("</table></div>")
    body.append("<h2>All cases</h2><div><table><tr><th>family<th>kind<th>case<th>result<th>worst of limit<th>s</tr>")
    for row in record["rows"]:
        cells = [_family(row), row["kind"], row["name"], row["status"], worst(row), f"{row['seconds']:.2f}"]
        body.append(f'<tr class="{row["status"]}">' + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>")
    body.append("</table></div><h2>Environment</h2><ul>")
    body += [f"<li>{escape(name)}: {escape(_plain(value))}</li>" for name, value in record["environment"].items()]
    body.append("</ul><h2>Stand-ins</h2><ul>")
    body += [f"<li>{escape(what)}</li>" for what in record["stand_ins"]]
    return _PAGE.format(title=escape(record["technique"]), body="\n".join([*body, "</ul>"]))


def bars(title: str, series: dict[str, list[float]]) -> str:
    """A bar chart as inline SVG: one bar per rank and arm."""
    top = max((value for values in series.values() for value in values), default=0) or 1
    ranks = max((len(values) for values in series.values()), default=0)
    width, height, gap = 18, 120, 14
    group = len(series) * width + gap
    parts = [f'<text x="0" y="12">{escape(title)} (largest {top:,.4g})</text>']
    for arm, (name, values) in enumerate(series.items()):
        colour = COLOURS[arm % len(COLOURS)]
        for rank, value in enumerate(values):
            size = height * value / top
            x, y = rank * group + arm * width, 20 + height - size
            tip = f"<title>rank {rank}, {escape(name)}: {value:,.4g}</title>"
            parts.append(
                f'<rect x="{x}" y="{y:.1f}" width="{width - 2}" height="{size:.1f}" fill="{colour}">{tip}</rect>'
            )
        parts.append(f'<rect x="{120 * arm}" y="{height + 42}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{120 * arm + 14}" y="{height + 51}">{escape(name)}</text>')
    parts += [f'<text x="{rank * group}" y="{height + 34}">rank {rank}</text>' for rank in range(ranks)]
    shape = f'width="{max(ranks * group, 120 * len(series), 320)}" height="{height + 60}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {shape} font-size="11" role="img">{"".join(parts)}</svg>'


def _series(row: dict[str, Any], prefix: str) -> dict[str, list[float]]:
    return {name.removeprefix(prefix): values for name, values in row["numbers"].items() if name.startswith(prefix)}


def _cost_table(row: dict[str, Any]) -> list[str]:
    lines = ["| | " + " | ".join(f"rank {rank}" for rank in range(len(next(iter(row["numbers"].values()))))) + " |"]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    return lines + [
        f"| {name} | {' | '.join(_plain(value) for value in values)} |" for name, values in row["numbers"].items()
    ]


def _costs(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Cost cases that measured two arms; a suite may judge costs in another form, by its checks alone."""
    return [row for row in _of_kind(record, "cost") if "patches, sharded" in row["numbers"]]


def _of_kind(record: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in record["rows"] if row["kind"] == kind and row.get("numbers")]


def _closeness(value: float, limit: float) -> float:
    return value / limit if limit else float(value > 0)


def _family(row: dict[str, Any]) -> str:
    return f"{row['family']} ({row['variant']})" if row.get("variant") else row["family"]


def _label(row: dict[str, Any]) -> str:
    return f"{_family(row)}, {row['kind']}: {row['name']}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse }}
td, th {{ padding: .15rem .6rem; text-align: left; white-space: nowrap; border-bottom: 1px solid #ddd }}
tr.failed {{ background: #fde7ea }} tr.skipped {{ color: #777 }} svg {{ margin: 0 2rem 1rem 0; max-width: 100% }}
div {{ overflow-x: auto }} li {{ overflow-wrap: anywhere }}
pre {{ background: #f5f5f5; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere }}
</style>
{body}
</html>
"""
