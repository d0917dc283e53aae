"""Start the ranks of a suite, here or as a Slurm job, and make the report. Needs neither torch nor the target."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import SkillgenError
from skillgen.launch import processes, rendezvous
from skillgen.launch.collect import Ending, Progress, Teller, collect
from skillgen.launch.environment import variables
from skillgen.launch.order import Run, check, retold, torchrun

if TYPE_CHECKING:
    from skillgen.launch.slurm import Slurm


def run_suite(
    technique: str,
    target_root: str | Path,
    families: Sequence[str],
    *,
    report: str | Path | None = None,
    progress: Progress | None = None,
    slurm: Slurm | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Run a technique's suite on a patched target; the report as a dict, also written to `report` if given.

    `progress` is called with every row as it comes. With `slurm` the ranks are a job of that cluster, and `report` is
    a folder that its nodes see. The other options are those of `Run`.

    Raises:
        SkillgenError: the run could not be made or did not come to its end. Failed cases are not an error.
    """
    options["python"] = options.get("python") or sys.executable
    run = Run(technique=technique, target=Path(target_root), families=families, **options)
    check(run, slurm)
    started = time.monotonic()
    if slurm is not None:
        from skillgen.launch import slurm_suite

        record, problem = slurm_suite.run(run, slurm, Path(report or ""), progress)
    else:
        record, problem = _run_here(run, progress)
    record["seconds"] = round(time.monotonic() - started, 1)
    from skillgen.report.record import finish, write

    record |= {"technique": technique, "target": str(run.target.resolve()), "families": list(families)}
    record |= {"nproc": run.nproc * run.nnodes, "backend": run.backend, "mutate": run.mutate, "baseline": run.baseline}
    record["command"] = retold(run, slurm, report)
    finish(record)
    if report is not None:
        write(record, Path(report))
    if problem is not None:
        problem.where = str(report or "")
        raise problem
    return record


def _run_here(run: Run, progress: Progress | None) -> tuple[dict[str, Any], SkillgenError | None]:
    rows = []
    if run.upstream:
        from skillgen.launch import upstream

        mcore = str(run.mcore) if run.mcore else None
        rows.append(upstream.row(run.technique, run.target, python=run.python, mcore=mcore, limit=run.timeout))
        if progress is not None:
            progress(rows[0])
    if not run.needs_ranks:
        return {"rows": rows, "kinds": list(run.kinds or ()), "stand_ins": [], "environment": {}}, None
    with tempfile.TemporaryDirectory(prefix="skillgen-eval-") as folder:
        work = Path(folder)
        run.prepare(work, shared=False)
        meet = rendezvous.endpoint(run.rdzv_endpoint, run.nnodes) if run.rdzv_endpoint else None
        command = torchrun(run.python, run.nproc, run.nnodes, meet, work)
        ended = _watch(command, work, run.timeout, progress, run.backend)
        record, problem = _collected(run, work, ended, meet)
    record["rows"] = [*rows, *record["rows"]]
    return record, problem


def _collected(
    run: Run, work: Path, ended: int | None, meet: str | None
) -> tuple[dict[str, Any], SkillgenError | None]:
    """The record of ranks that torchrun started, or should have."""
    what = f"did not end within {run.timeout:g} s" if ended is None else f"ended with exit code {ended}"
    ending = None if ended == 0 else Ending("eval-timed-out" if ended is None else "eval-died", what)
    if ending is None or meet is None or not rendezvous.missed(work, ended):
        return collect(work, ending, run.nproc * run.nnodes)
    what = f"did not start within {run.timeout:g} s" if ended is None else f"did not start and {what}"
    nodes = f"{run.nnodes} node{'s' if run.nnodes > 1 else ''}"
    ending = Ending("eval-not-started", f"{what}: the rendezvous at {meet} was not completed by {nodes}")
    record, problem = collect(work, ending, run.nproc * run.nnodes)
    told = "\n".join([rendezvous.advice(meet, run.nnodes), *filter(None, [record["rows"][-1]["traceback"]])])
    record["rows"][-1]["traceback"] = told
    if problem is not None:
        problem.hint = told
    return record, problem


def _watch(
    command: list[str], work: Path, timeout: float, progress: Progress | None, backend: str = "gloo"
) -> int | None:
    """Wait for torchrun; its exit code, or None if the time was up and everything was killed."""
    environment = os.environ | variables(backend)
    teller = Teller(work, progress)
    return processes.run(command, work / "torchrun.log", timeout, environment=environment, each=teller)
