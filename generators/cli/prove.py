"""Run a technique's eval on a patched target, and turn its record into rows."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.cli.output import Result, progress
from skillgen.kernel.errors import EVAL_FAILED, REFUSED, USAGE, SkillgenError
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.product import beside
from skillgen.launch import cluster

if TYPE_CHECKING:
    from skillgen.kernel.target import Target
    from skillgen.launch.slurm import Slurm

COLUMNS = ("family", "kind", "name", "status", "seconds", "reason")


def prove(args: argparse.Namespace, target: Target) -> Result:
    """Run the suite; exit code 1 and an error beside the rows if a case failed or nothing was proven."""
    from skillgen.engine import registry
    from skillgen.engine.scan import scan
    from skillgen.engine.suites import suite_of
    from skillgen.launch.suite import run_suite

    registry.load(args.technique)
    suite = suite_of(args.technique)
    _known("kind", args.kind or [], suite.KINDS)
    _known("mutate", [args.mutate] if args.mutate else [], suite.MUTATIONS)
    kinds = ["probe"] if args.probe else args.kind
    if args.probe:
        families = [_probed(suite, args.technique, target.product)]
    else:
        rows = scan(target, technique=args.technique)
        families = _families(rows, args.family or [], args.technique, args.target, suite.CONTROLS)
    job = cluster.slurm(args, args.nnodes, **({"gpus_per_node": args.nproc} if args.backend == "nccl" else {}))
    options = _options(args, target, kinds, job)
    if job and not (args.submit or job.job):
        return _written(args, target, families, options, job)
    done = 0
    with progress("starting the ranks", quiet=args.json) as advance:

        def tell(row: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            advance(done, 0, f"{row['family']} {row['kind']}: {row['name']}")

        record = run_suite(
            args.technique,
            target.root,
            families,
            report=args.report,
            slurm=job,
            progress=tell,
            **options,
        )
    record["gains"] += suite.probed(record["rows"]) if args.probe else []
    message = "\n".join([record["verdict"], *record["gains"], *([f"report: {args.report}"] if args.report else [])])
    if record["ok"]:
        return Result(record["rows"], COLUMNS, message)
    failed = [f"{row['family']}/{row['kind']}/{row['name']}" for row in record["rows"] if row["status"] == "failed"]
    error = SkillgenError(
        "eval-failed" if failed else "nothing-proven",
        record["verdict"],
        where="; ".join(failed[:5]),
        hint=f"the numbers are in {args.report}" if args.report else "--report DIR keeps every number",
        exit_code=EVAL_FAILED,
    )
    return Result(record["rows"], COLUMNS, exit_code=EVAL_FAILED, error=error)


def _options(args: argparse.Namespace, target: Target, kinds: list[str] | None, job: Slurm | None) -> dict[str, Any]:
    """What the launcher is told; a container has a Python of its own."""
    if job and args.rdzv_endpoint:
        message = "--rdzv-endpoint with --launcher slurm: the ranks meet on the first node of the job"
        raise SkillgenError("usage", message, exit_code=USAGE)
    image = job.settings.container_image if job else None
    return {
        **{
            name: getattr(args, name)
            for name in ("nproc", "backend", "mutate", "baseline", "timeout", "rdzv_endpoint")
        },
        "kinds": kinds,
        "mcore": args.mcore or (target.root if target.product == beside().name else None),
        "python": args.python or ("python3" if image else sys.executable),
        "nnodes": (job.settings.nodes if job else args.nnodes) or 1,
    }


def _written(
    args: argparse.Namespace, target: Target, families: list[str], options: dict[str, Any], job: Slurm
) -> Result:
    """Write the batch script, and say how to go on."""
    from skillgen.launch.order import Run, check, retold
    from skillgen.launch.slurm_suite import write

    run = Run(technique=args.technique, target=target.root, families=families, **options)
    check(run, job)
    script = write(run, job, Path(args.report))
    submit = f"sbatch {shlex.quote(str(script))}"
    collect = retold(run, job, args.report).replace("--submit", "--job ID")
    row = {"script": str(script), "text": script.read_text(), "submit": submit, "collect": collect}
    message = f"{row['text']}\nwritten, not submitted; --submit does both\n  submit:  {submit}\n  collect: {collect}"
    return Result([row], (), message)


def _probed(suite: Any, technique: str, product: str) -> str:
    """The part that holds the probe; it runs on an unpatched target as well."""
    families: dict[str, str] = getattr(suite, "PROBE", {})
    if product not in families:
        hint = (
            f"it has one for {', '.join(families)}"
            if families
            else "leave --probe out: this technique's eval has none"
        )
        raise SkillgenError("no-probe", f"{technique} has no probe for {product}", hint=hint, exit_code=USAGE)
    return families[product]


def _known(option: str, asked: Sequence[str], names: Sequence[str]) -> None:
    if unknown := [name for name in asked if name not in names]:
        raise SkillgenError(
            f"no-such-{option}",
            f"--{option} {unknown[0]}: this technique's eval has none of that name",
            hint=f"one of: {', '.join(names)}",
            exit_code=USAGE,
        )


def _families(
    rows: Sequence[Row], asked: Sequence[str], technique: str, target: str, controls: Sequence[str]
) -> list[str]:
    """The families to run: every applied one; a refused one only if named, as a control that has to fail its gate."""
    by_family = {row.family: row for row in rows if row.outcome is not Outcome.CANDIDATE}
    chosen = list(dict.fromkeys(asked)) or [f for f, row in by_family.items() if row.outcome is Outcome.APPLIED]
    patch = f"skillgen apply {technique} {target}"
    if not chosen:
        message = "no family of this target is patched"
        raise SkillgenError("not-applied", message, where=target, hint=patch, exit_code=REFUSED)
    for family in chosen:
        if family not in by_family:
            known = ", ".join(by_family) or "none"
            message = f"this target has no family called {family!r}"
            raise SkillgenError("unknown-family", message, hint=f"one of: {known}", exit_code=USAGE)
        row = by_family[family]
        control = row.outcome is Outcome.REFUSED and family in controls
        if row.outcome is not Outcome.APPLIED and not control:
            message = f"{family} is {row.outcome.value}, not applied: the eval judges patched code"
            message += "" if row.plannable else f"; it cannot be patched: {row.detail or row.reason}"
            hint = f"{patch} --family {family}" if row.plannable else f"skillgen scan {target} shows what can be"
            where = row.evidence[0] if row.evidence else target
            raise SkillgenError("not-applied", message, where=where, hint=hint, exit_code=REFUSED)
    return chosen
