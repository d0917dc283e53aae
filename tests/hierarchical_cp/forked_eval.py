"""Run specs of hierarchical-cp on forked ranks: what they import is imported once, here.

Usage: python forked_eval.py SPECS.json, all of one target; prints a list of {"kind: name": [status, reason]}.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from skillgen.evals.hierarchical_cp import suite as hierarchical_cp
from skillgen.evals.kernel import worker
from tests.distributed import run_ranks


def main(specs: list[dict[str, Any]]) -> list[dict[str, list[str]]]:
    import torch

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    harness = hierarchical_cp.harness(specs[0])
    from skillgen.evals.hierarchical_cp import (
        cases_checks,
        cases_groups,
        cases_numerics,
        cases_probe,
        cases_wiring,
        mutations,
    )
    from skillgen.evals.hierarchical_cp.paths import Paths

    assert all((cases_checks, cases_groups, cases_numerics, cases_probe, cases_wiring, mutations))
    Paths(harness, "gloo").attention()
    return [run(spec) for spec in specs]


def run(spec: dict[str, Any]) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        spec |= {"result": os.path.join(folder, "result.json"), "progress": os.path.join(folder, "progress.jsonl")}
        run_ranks(spec.pop("nproc"), lambda rank: worker.run(spec), timeout=spec.pop("timeout"))
        record = json.loads(Path(spec["result"]).read_text())
    assert record["running"] is None
    return {f"{row['kind']}: {row['name']}": [row["status"], row["reason"]] for row in record["rows"]}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
