"""The report of a run: one JSON, one Markdown page, one HTML page with plots, verdict and failures first."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skillgen.report import comparison, upstream
from skillgen.report.page import page
from skillgen.report.plots import bars
from skillgen.report.read import NAME, SCHEMA, judged, read, verdict
from skillgen.report.rows import costs, family, number, worst
from skillgen.report.text import markdown

__all__ = ["SCHEMA", "bars", "comparison", "finish", "gain", "markdown", "page", "read", "worst", "write"]


def finish(record: dict[str, Any]) -> dict[str, Any]:
    """Add the verdict: `ok`, `counts`, `verdict` (one line), `gains` (a line per cost case: what fell, how far)."""
    from skillgen.kernel.resources import version
    from skillgen.report.code_hash import stamp
    from skillgen.report.origin import origin

    rows = record["rows"]
    record |= {"schema": SCHEMA, "pack_version": version(), "finished": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"}
    record["patched"] = origin(record["target"], record["technique"]) if "target" in record else {}
    if record["patched"] and not record["mutate"]:  # broken code proves nothing, whoever wrote it
        families = {*record["patched"]["families"], *(row["family"] for row in rows)}
        record["code"] = stamp(record["technique"], record["target"], families)
    counts, _, ok = judged(rows)
    record |= {"counts": counts, "ok": ok}
    record["gains"] = [gain(row) for row in costs(record) if row["status"] == "passed"]
    record["gains"] += [upstream.gain(row) for row in rows if row["kind"] == upstream.KIND and "numbers" in row]
    record["verdict"] = verdict(record)
    return record


def gain(row: dict[str, Any]) -> str:
    """What sharding saved in a cost case, on the busiest rank."""

    def fell(prefix: str, what: str, scale: float, unit: str) -> str:
        before, after = (max(row["numbers"][f"{prefix}, {arm}"]) for arm in ("replicated", "sharded"))
        return f"{what} {number(before / scale)} to {number(after / scale)}{unit} ({after / before:.0%})"

    parts = [
        fell("patches", "patches", 1, ""),
        fell("activation bytes", "activations", 1e6, " MB"),
        fell("busy ms", "busy time", 1, " ms"),
    ]
    return f"{family(row)}, {row['name']}, per rank: {', '.join(parts)}"


def write(record: dict[str, Any], folder: Path) -> None:
    """report.json, report.md and report.html in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    record = _finite(record)
    (folder / NAME).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(markdown(record), encoding="utf-8")
    (folder / "report.html").write_text(page(record), encoding="utf-8")


def _finite(value: Any) -> Any:
    """The same without NaN and infinity, which JSON does not have: they become words."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
