"""An eval as a Slurm job: its batch script, its folder below the report, and what came of it."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from skillgen.kernel.errors import SkillgenError
from skillgen.launch import slurm
from skillgen.launch.collect import Ending, Progress, Teller, collect, last_lines
from skillgen.launch.order import Run, torchrun
from skillgen.report.upstream import KIND as UPSTREAM_TESTS


def folder(report: Path) -> Path:
    """Where the job reads its order and writes; every node has to see it."""
    return report.resolve() / "slurm"


def write(run: Run, job: slurm.Slurm, report: Path) -> Path:
    """Write the order and the batch script below the report's folder; the script's path."""
    from skillgen.kernel.render import render

    work = folder(report)
    settings = replace(job.settings, ntasks_per_node=1)  # one torchrun, whatever a profile has for other commands
    command = torchrun(run.python, run.nproc, run.nnodes, "{endpoint}", work, "logs/node{node}")
    ranks = "exec " + slurm.shell(command, {"{endpoint}": "$1", "{node}": "$SLURM_NODEID"})
    text = render(
        "slurm/eval.sbatch.j2",
        header=settings.header(f"skillgen-{run.technique}", work / "slurm.log", _seconds(run)),
        about=f"skillgen eval {run.technique}: {run.nproc} ranks on each node ({run.backend})",
        exports=slurm.exports(run.backend, settings.env),
        srun=shlex.join(settings.srun(report, run.target, run.mcore)),
        upstream=shlex.join([run.python, "-m", __name__, str(work / "spec.json")]) if run.upstream else "",
        ranks=shlex.quote(ranks) if run.needs_ranks else "",
        seconds=f"{run.timeout:g}",
    )
    slurm.new_folder(work)
    script = work / "job.sbatch"
    script.write_text(text)
    run.prepare(work, shared=True)
    return script


def run(
    run: Run, job: slurm.Slurm, report: Path, progress: Progress | None
) -> tuple[dict[str, Any], SkillgenError | None]:
    """Submit the job, or take up one that was submitted by hand, and wait for it; its record, as of a local run."""
    work = folder(report)
    number = slurm.begin(job, work, run.order(work, shared=True), lambda: write(run, job, report))
    teller = Teller(work, progress)
    ending = slurm.wait(job, number, _seconds(run), teller)
    if ending is None:
        slurm.late(lambda: _complete(work, run))
    if ending is not None and ending.code == "eval-lost" and _complete(work, run):
        ending = None  # what it wrote says that it ended well
    teller()
    record, problem = _record(work, ending, run)
    where = {"job": number, "nodes": run.nnodes, "script": str(work / "job.sbatch")}
    record["environment"]["slurm"] = where | {name: getattr(job.settings, name) for name in ("partition", "account")}
    return record, problem


def _record(work: Path, ending: Ending | None, run: Run) -> tuple[dict[str, Any], SkillgenError | None]:
    """The rows of the ranks after that of the target's own tests."""
    record: dict[str, Any] = {"rows": [], "kinds": list(run.kinds or ()), "stand_ins": [], "environment": {}}
    problem = None
    if run.needs_ranks:
        record, problem = collect(work, ending, run.nproc * run.nnodes)
    if run.upstream:
        told = work / "upstream.json"
        lost = {"family": "all", "variant": "", "kind": UPSTREAM_TESTS, "name": "the target's own unit tests"}
        lost |= {"status": "failed", "reason": "the step of the job wrote nothing", "traceback": last_lines(work)}
        record["rows"].insert(0, json.loads(told.read_text()) if told.is_file() else lost | {"seconds": 0})
    return record, problem


def _seconds(run: Run) -> float:
    """How long the job may run; of the target's own tests there are up to three runs."""
    return run.timeout * (run.needs_ranks + 3 * run.upstream)


def _complete(work: Path, run: Run) -> bool:
    result = work / "result.json"
    ranks = not run.needs_ranks or (result.is_file() and json.loads(result.read_text())["running"] is None)
    return ranks and (not run.upstream or (work / "upstream.json").is_file())


def main(spec_path: str) -> None:
    """The step of a job that runs the target's own tests."""
    from skillgen.launch import upstream

    spec = json.loads(Path(spec_path).read_text())
    options = {"python": sys.executable, "mcore": spec["mcore"], "limit": spec["timeout"]}
    row = upstream.row(spec["technique"], Path(spec["target"]), **options)
    partial = Path(spec_path).with_name("upstream.partial")
    partial.write_text(json.dumps(row))
    partial.replace(partial.with_suffix(".json"))


if __name__ == "__main__":
    main(sys.argv[1])
