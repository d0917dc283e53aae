"""Run specs of vision-tp-dp on forked ranks: what they import is imported once, here.

Usage: python forked_eval.py SPECS.json, all of one target; prints a list of {"kind: name": status}.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from skillgen.evals.kernel import worker
from skillgen.evals.vision_tp_dp import suite as vision_tp_dp
from tests.distributed import run_ranks

CORE = ("distributed", "hyper_comm_grid", "dist_checkpointing.validation", "optimizer.optimizer")


def main(specs: list[dict[str, Any]]) -> list[dict[str, str]]:
    import torch

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    harness = vision_tp_dp.harness(specs[0])
    harness.prepare()
    for take in (harness.parts, harness.bridge, harness.setup):
        take()
    for name in (*CORE, "process_groups_config"):
        importlib.import_module(f"megatron.core.{name}")
    for name in (*vision_tp_dp.MODULES.values(), "mutations"):
        importlib.import_module(f"skillgen.evals.vision_tp_dp.{name}")
    return [run(spec) for spec in specs]


def run(spec: dict[str, Any]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        spec |= {"result": os.path.join(folder, "result.json"), "progress": os.path.join(folder, "progress.jsonl")}
        run_ranks(spec.pop("nproc"), lambda rank: worker.run(spec), timeout=spec.pop("timeout"))
        record = json.loads(Path(spec["result"]).read_text())
    assert record["running"] is None
    return {f"{row['kind']}: {row['name']}": row["status"] for row in record["rows"]}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
