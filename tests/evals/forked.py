"""Run eval specs on forked ranks: the imports, which cost most of a run, are made once for all of them.

Usage: python forked.py SPECS.json; prints one record per spec. Each record is {"row name": status}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from skillgen.engine.suites import suite_of
from skillgen.evals.kernel import worker
from tests.distributed import RankError, run_ranks
from tests.evals.rounding import rounding


def main(specs: list[dict[str, Any]]) -> list[dict[str, str]]:
    import torch

    torch.set_num_threads(1)
    suite = suite_of(specs[0]["technique"])
    harness = suite.harness(specs[0])
    families = importlib.import_module(suite.FAMILIES)
    for name in sorted({name for spec in specs for name in spec["families"]}):
        families.load(name)(harness)
    for module in specs[0].get("modules", ()):
        harness.load(module)
    return [run(spec) for spec in specs]


def run(spec: dict[str, Any]) -> dict[str, str]:
    by_rows = spec.pop("rounding_by_rows", False)

    def on_rank(rank: int) -> None:
        with rounding() if by_rows else nullcontext():
            worker.run(spec)

    with tempfile.TemporaryDirectory() as folder:
        spec |= {"result": os.path.join(folder, "result.json"), "progress": os.path.join(folder, "progress.jsonl")}
        with suppress(RankError):  # gloo aborts a rank that gets more than it expects; what was shown before counts
            run_ranks(spec.pop("nproc"), on_rank, timeout=spec.pop("timeout"))
        record = json.loads(Path(spec["result"]).read_text())
        if record["running"] is not None:
            return {record["running"]: "died"} | statuses(record)
    return statuses(record)


def statuses(record: dict[str, Any]) -> dict[str, str]:
    return {f"{row['family']} {row['kind']}: {row['name']}": row["status"] for row in record["rows"]}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
