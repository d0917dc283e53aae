"""One rank of an eval run, started by torchrun with the path of a JSON file that says what to run."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any


def main(spec_path: str) -> None:
    """Run every case on this rank; one rank writes the rows as they come, and the record at the end."""
    from skillgen.evals.kernel.suites import suite_of

    spec = json.loads(Path(spec_path).read_text())
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.pop(suite_of(spec["technique"]).SWITCH, None)
    import torch
    import torch.distributed as dist

    if spec["backend"] == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)
    dist.init_process_group(spec["backend"], timeout=timedelta(seconds=spec["limit"] + 60))
    try:
        run(spec)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if sys.exc_info()[0] is None else _say_why())  # a group's teardown may wait for failed peers


def run(spec: dict[str, Any]) -> None:
    """Run all families; rank 0, or the first of each node, keeps a record on disk up to date in case a rank dies."""
    import torch.distributed as dist

    from skillgen.evals.kernel.context import Context
    from skillgen.evals.kernel.environment import environment
    from skillgen.evals.kernel.suites import suite_of

    suite = suite_of(spec["technique"])
    families = importlib.import_module(suite.FAMILIES)
    kinds = tuple(spec["kinds"] or suite.KINDS)
    harness = suite.harness(spec)
    context = Context(harness, spec)
    rows: list[dict[str, Any]] = []
    hosts = sorted({part["host"] for part in context.exchange({"host": platform.node()})})
    # every rank has all rows; nodes that do not share the folder each have someone who waits for them
    writes = dist.get_rank() == 0 if spec.get("shared", True) else int(os.environ["LOCAL_RANK"]) == 0

    def keep(running: str | None, row: dict[str, Any] | None = None) -> None:
        rows.extend([row] if row else [])
        if writes:
            record: dict[str, Any] = {"rows": rows, "kinds": list(kinds), "running": running}
            record["stand_ins"] = harness.stand_ins
            record["environment"] = environment(harness, spec["backend"], spec.get("told", {})) | {"hosts": hosts}
            partial = Path(spec["result"] + ".partial")
            partial.write_text(json.dumps(record))
            partial.replace(spec["result"])
            if row:
                with open(spec["progress"], "a") as progress:
                    progress.write(json.dumps(row) + "\n")

    mutated = False
    for name in spec["families"]:
        family_class = families.load(name)
        for variant in family_class.variants:
            where = {"family": name, "variant": variant}
            family, row = prepared(suite, context, family_class, variant, None if mutated else spec["mutate"])
            if family is None:
                keep(name, where | row)
                break
            mutated = True
            for case in suite.cases(context, family, kinds):
                keep(f"{name}, {case.kind}: {case.name}")
                keep(name, where | context.run(case))
    keep(None)


def prepared(suite: Any, context: Any, build: Any, variant: str, mutate: str | None) -> tuple[Any, dict[str, Any]]:
    """The family, where all ranks can judge it, and the row that says why not: skipped, or failed of itself."""
    from skillgen.evals.kernel.context import Case, Result

    made = []

    def prepare() -> Result:
        made.append(build(context.harness, variant))
        suite.require(context, made[0])
        if mutate:
            suite.mutate(mutate, context)
        return Result()

    row = context.run(Case("all", "all cases", prepare))
    return made[0] if row["status"] == "passed" else None, row


def _say_why() -> int:
    import traceback

    traceback.print_exc()
    sys.stderr.flush()
    return 1


if __name__ == "__main__":
    main(sys.argv[1])
