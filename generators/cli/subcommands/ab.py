"""`skillgen ab`: the same training run twice, with only a flag flipped, and whether it is worth it."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.cli.output import Result, progress
from skillgen.kernel.errors import EVAL_FAILED, USAGE, SkillgenError
from skillgen.launch import cluster

if TYPE_CHECKING:
    from skillgen.cli.found import Add
    from skillgen.launch.ab.run import Order
    from skillgen.launch.slurm import Slurm

UNJUDGED = ("loss", "step_time", "peak_memory")  # where they are `none`
COLUMNS = ("name", "status", "reason")
ABOUT = """\
examples:
  skillgen ab --flag model.FIELD --report DIR -- python -m torch.distributed.run --nproc_per_node=8 \\
    scripts/training/run_recipe.py --recipe NAME model.context_parallel_size=2 train.train_iters=20
  skillgen ab --flag FIELD --target CHECKOUT --recipe NAME --nproc 8 -- \\
    model.context_parallel_size=2 train.train_iters=20
  skillgen ab --flag=--section.FIELD -- python train.py recipe.yaml

In the command, {flag} is where the flag goes (else it comes last), {arm} is a or b: give each arm a checkpoint folder
of its own. In a job {nnodes} and {endpoint} are its number of nodes and where torchrun's ranks meet.
"""


def _ratio(text: str) -> float | None:
    return None if text == "none" else cluster.number(text)


def _difference(text: str) -> float | None:
    return None if text == "none" else cluster.number(text, zero=True)


def register(command: Add) -> None:
    """Add the command's parser."""
    parser = command("ab", "run a recipe twice with one flag flipped; compare time, memory and losses")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, ABOUT
    parser.add_argument(
        "--flag",
        required=True,
        metavar="KEY[=A,B]",
        help="KEY=VALUE or --key VALUE (written --flag=--key), whichever the trainer takes, or an "
        "environment variable; A and B are false and true, or 0 and 1, unless given",
    )
    parser.add_argument("--target", metavar="DIR", help="a checkout whose recipe is run")
    parser.add_argument("--recipe", metavar="NAME", help="its name, or its YAML file, as the checkout takes recipes")
    parser.add_argument(
        "--nproc", type=cluster.count(1), default=8, metavar="N", help="ranks on each node, for a recipe (8)"
    )
    parser.add_argument("--nnodes", type=cluster.count(1), metavar="N", help="nodes of the job (default 1)")
    parser.add_argument("--python", metavar="EXE", help="the Python that runs a recipe (default: this one)")
    parser.add_argument("--report", metavar="DIR", help="where logs and the JSON and Markdown reports go")
    parser.add_argument(
        "--timeout", type=cluster.seconds, default=3600, metavar="S", help="end an arm after S seconds (3600)"
    )
    limits = parser.add_argument_group("criteria, as ratios of B to A; `none` leaves one unjudged")
    limits.add_argument(
        "--loss", type=_difference, default=0.02, metavar="X", help="losses differ by at most X of A's (0.02)"
    )
    limits.add_argument(
        "--step-time", type=_ratio, default=1.02, metavar="X", help="median step time at most X (1.02)"
    )
    limits.add_argument("--peak-memory", type=_ratio, default=1.0, metavar="X", help="peak memory below X (1)")
    limits.add_argument(
        "--warmup", type=cluster.count(0), default=3, metavar="N", help="steps whose time does not count (3)"
    )
    cluster.add_options(parser, tasks=True)
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="after --: the command, or what a recipe gets")


def run(args: argparse.Namespace) -> Result:
    """Run both arms; exit code 1 if a criterion is not met or an arm fails."""
    from skillgen.launch.ab import run as ab

    job = cluster.slurm(args, args.nnodes, **({"gpus_per_node": args.nproc} if args.recipe else {}))
    if args.nnodes and job is None:
        raise SkillgenError("no-cluster", "--nnodes without --launcher slurm: the arms run here", exit_code=USAGE)
    order = _order(args, job)
    report = Path(args.report) if args.report else None
    if job and report and not (args.submit or job.job):
        script = ab.script(order, report, job)
        submit = f"sbatch {shlex.quote(str(script))}"
        row: dict[str, Any] = {"script": str(script), "text": script.read_text(), "submit": submit}
        hint = "written, not submitted; --submit does both, and --job ID waits for one that you submitted"
        return Result([row], (), f"{row['text']}\n{hint}\n  submit: {submit}")
    with progress("starting arm A", quiet=args.json) as advance:

        def tell(arm: str, steps: int) -> None:
            advance(steps, 0, f"arm {arm}, step {steps}")

        record = ab.run(order, report, job=job, progress=tell)
    if record["ok"]:
        told = f"report: {report}" if report else "--report DIR keeps logs and figures"
        return Result(record["rows"], COLUMNS, f"{record['verdict']}\n{told}")
    failed = [row for row in record["rows"] if row["status"] == "failed"]
    error = SkillgenError(
        "ab-died" if failed[0]["kind"] == "run" else "ab-failed",
        record["verdict"],
        where="; ".join(row["name"] for row in failed),
        hint=failed[0].get("traceback") or (f"the figures are in {report}" if report else "--report DIR keeps them"),
        exit_code=EVAL_FAILED,
    )
    return Result(record["rows"], COLUMNS, exit_code=EVAL_FAILED, error=error)


def _order(args: argparse.Namespace, job: Slurm | None) -> Order:
    from skillgen.launch.ab.arms import Flag, recipe
    from skillgen.launch.ab.judge import Limits
    from skillgen.launch.ab.run import Order

    flag = Flag.parse(args.flag)
    limits = Limits(
        loss=args.loss,
        step_time=args.step_time,
        peak_memory=args.peak_memory,
        warmup=args.warmup,
    )
    asked = {"limits": limits, "timeout": args.timeout, "retold": _retold(args, job)}
    if not args.recipe:
        if args.target or not args.words:
            missing = "--target is for a --recipe" if args.target else "give the command after --, or a --recipe"
            raise SkillgenError("no-command", missing, hint="skillgen ab --help has examples", exit_code=USAGE)
        return Order(command=args.words, flag=flag, **asked)
    if not args.target:
        raise SkillgenError("no-target", "--recipe needs --target DIR", exit_code=USAGE)
    from skillgen.kernel.target import discover

    target = discover(args.target)
    image = job.settings.container_image if job else None
    options = {"nproc": args.nproc, "nnodes": (job.settings.nodes if job else None) or 1}
    options["python"] = args.python or ("python3" if image else sys.executable)
    command, flag, found = recipe(target, args.recipe, flag, args.words, **options)
    if earlier := os.environ.get("PYTHONPATH"):
        found["PYTHONPATH"] += os.pathsep + earlier
    return Order(command=command, flag=flag, folder=target.root, variables=found, **asked)


def _retold(args: argparse.Namespace, job: Slurm | None) -> str:
    """The command that a reader types to repeat this."""
    words = ["skillgen", "ab", f"--flag={args.flag}"]
    names = ["target", "recipe", "nproc", "python"] if args.recipe else []
    paths = _paths(args)
    for name in (*names, "timeout", "loss", "step_time", "peak_memory", "warmup"):
        value = paths.get(name, getattr(args, name))
        value = "none" if value is None and name in UNJUDGED else value
        if value is not None:
            words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    if job:
        words += ["--launcher", "slurm", "--submit", "--report", os.path.abspath(args.report), *job.settings.words()]
    return shlex.join([*words, "--", *args.words])


def _paths(args: argparse.Namespace) -> dict[str, str]:
    """Options that name a place, which a reader may be elsewhere than; a name alone is looked up, not a place."""
    found = {"target": args.target} if args.target else {}
    found |= {"recipe": args.recipe} if args.recipe and Path(args.recipe).is_file() else {}
    found |= {"python": args.python} if args.python and os.sep in args.python else {}
    return {name: os.path.abspath(path) for name, path in found.items()}
