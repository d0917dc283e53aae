"""Run both arms, here or as one Slurm job on the same nodes, and make the report."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.kernel.product import titles
from skillgen.kernel.trainer_log import Log
from skillgen.launch import processes, slurm
from skillgen.launch.ab.arms import Arm, Flag, arms
from skillgen.launch.ab.judge import Limits, headline, judge, middle
from skillgen.launch.ab.logs import read
from skillgen.launch.ab.report import write
from skillgen.launch.collect import tail

Progress = Callable[[str, int], None]  # arm, number of steps


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be compared, and how long each arm may take."""

    command: Sequence[str]
    flag: Flag
    limits: Limits = field(default_factory=Limits)
    folder: Path = field(default_factory=Path.cwd)  # where the command runs
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 3600
    retold: str = ""

    def arms(self) -> list[Arm]:
        """The two runs."""
        return arms(self.command, self.flag)

    def told(self) -> dict[str, Any]:
        """What a job is written for, to know it again."""
        return {f"arm {arm.name}": [*arm.words, *map(list, arm.variables.items())] for arm in self.arms()}


@dataclass
class Ran:
    """One arm after its run."""

    arm: Arm
    log: Log
    failed: str = ""  # why it did not come to its end
    tail: str = ""
    seconds: float = 0


def run(
    order: Order, report: Path | None, *, job: slurm.Slurm | None = None, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Both arms, judged; the record, also written to `report` if given."""
    started = time.monotonic()
    with nullcontext(str(report)) if report else tempfile.TemporaryDirectory(prefix="skillgen-ab-") as folder:
        if job is None:
            logs = Path(folder)
            logs.mkdir(parents=True, exist_ok=True)
            ran, where = _here(order, logs, progress), {"host": socket.gethostname()}
        else:
            ran, where = _there(order, Path(folder), job, progress)
        record = _record(order, ran, where)
    record["seconds"] = round(time.monotonic() - started, 1)
    if report is not None:
        write(record, report)
    return record


def log_of(folder: Path, arm: Arm) -> Path:
    """Where an arm's output goes."""
    return folder / f"{arm.name.lower()}.log"


def code_of(folder: Path, arm: Arm) -> Path:
    """Where a job leaves an arm's exit code and seconds."""
    return folder / f"{arm.name.lower()}.code"


def left_by(path: Path) -> tuple[int, int] | None:
    """The exit code and the seconds of an arm that came to its end; None before that."""
    found = re.fullmatch(r"(\d{1,9}) (\d{1,9})\n", path.read_text()) if path.is_file() else None
    return (int(found[1]), int(found[2])) if found else None


class Steps:
    """Tells how many steps a growing log has."""

    def __init__(self, path: Path, tell: Callable[[int], None]) -> None:
        self.path, self.tell, self.at, self.steps, self.rest = path, tell, 0, set[int](), ""

    def __call__(self) -> None:
        if not self.path.is_file():
            return
        with open(self.path, encoding="utf-8", errors="replace") as file:
            file.seek(self.at)
            *lines, self.rest = (self.rest + file.read()).split("\n")
            self.at = file.tell()
        if new := read(lines).losses.keys() - self.steps:
            self.steps |= new
            self.tell(len(self.steps))


def _here(order: Order, folder: Path, progress: Progress) -> list[Ran]:
    """One arm after the other; B is of no use where A failed."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        endpoint = f"127.0.0.1:{held.getsockname()[1]}"
    ran = []
    for arm in order.arms():
        path = log_of(folder, arm)
        words = [word.replace("{nnodes}", "1").replace("{endpoint}", endpoint) for word in arm.words]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **order.variables, **arm.variables}
        steps = Steps(path, partial(progress, arm.name))
        started = time.monotonic()
        try:
            code = processes.run(words, path, order.timeout, environment=environment, folder=order.folder, each=steps)
        except (FileNotFoundError, PermissionError) as error:
            path.write_text(f"{error}\n")
            code = 127
        ran.append(_ran(arm, path, code, order, time.monotonic() - started))
        if ran[-1].failed:
            break
    return ran


def _ran(arm: Arm, path: Path, code: int | None, order: Order, seconds: float = 0, ending: str = "") -> Ran:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    found = Ran(arm, read(lines), seconds=round(seconds, 1))
    if ending:
        found.failed = ending
    elif code is None:
        found.failed = f"did not end within {order.timeout:g} s"
    elif code:
        found.failed = f"ended with exit code {code}"
    elif not found.log.product:
        found.failed = f"printed no step as {titles(training=True)} do"
    if found.failed and path.is_file():
        found.tail = "\n".join(tail(path))
    return found


def script(order: Order, report: Path, job: slurm.Slurm) -> Path:
    """Write the batch script of both arms."""
    from skillgen.kernel.render import render

    work = report.resolve() / "slurm"
    srun = shlex.join(job.settings.srun(report, order.folder, inside=order.folder))
    ours = {"{nnodes}": "$SLURM_JOB_NUM_NODES", "{endpoint}": "$head:$port"}
    steps = [
        {
            "name": arm.name,
            "log": shlex.quote(str(log_of(work, arm))),
            "code": shlex.quote(str(code_of(work, arm))),
            "variables": "".join(f"{name}={shlex.quote(value)} " for name, value in arm.variables.items()),
            "command": slurm.shell(arm.words, ours),
        }
        for arm in order.arms()
    ]
    given = _variables(order, job)
    text = render(
        "slurm/ab.sbatch.j2",
        header=job.settings.header("skillgen-ab", work / "slurm.log", 2 * order.timeout),
        about=f"skillgen ab: {order.flag.key} is {' and then '.join(order.flag.values)}, on the same nodes",
        exports=[
            *((name, shlex.quote(value), "") for name, value in given.items()),
            ("PYTHONUNBUFFERED", "1", "the log of an arm that hangs is complete"),
        ],
        folder=shlex.quote(str(order.folder)),
        srun=f"{srun} --ntasks-per-node={job.settings.ntasks_per_node or 1}",
        steps=steps,
        seconds=f"{order.timeout:g}",
    )
    slurm.new_folder(work)
    path = work / "job.sbatch"
    path.write_text(text)
    (work / slurm.SPEC).write_text(json.dumps(order.told()))
    return path


def _variables(order: Order, job: slurm.Slurm) -> dict[str, str]:
    """What both arms get in their environment: the user's own, and first on the path the code of the target."""
    given = dict(job.settings.env)
    ours = dict.fromkeys(("PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT"), "the job sets it")
    for name, why in (ours | dict.fromkeys(order.flag.variables(""), "the arms set it")).items():
        if name in given:
            raise SkillgenError("bad-setting", f"env {name}={given[name]}: {why}", exit_code=USAGE)
    theirs = [given["PYTHONPATH"]] if "PYTHONPATH" in given and "PYTHONPATH" in order.variables else []
    joined = {"PYTHONPATH": os.pathsep.join([order.variables["PYTHONPATH"], *theirs])} if theirs else {}
    return {**order.variables, **given, **joined}


def _there(order: Order, report: Path, job: slurm.Slurm, progress: Progress) -> tuple[list[Ran], dict[str, Any]]:
    """Both arms as one job; an arm that has left its exit code came to its end, whatever became of the job."""
    work = report.resolve() / "slurm"
    number = slurm.begin(job, work, order.told(), lambda: script(order, report, job))
    steps = [Steps(log_of(work, arm), partial(progress, arm.name)) for arm in order.arms()]

    def each() -> None:
        for count in steps:
            count()

    ending = slurm.wait(job, number, 2 * order.timeout, each)
    ran = []
    for arm in order.arms():
        path = code_of(work, arm)
        if ending is None:
            slurm.late(partial(left_by, path))
        left = left_by(path)
        lost = "" if left else ending.what if ending else "left no exit code"
        code, seconds = left or (None, 0)
        ran.append(_ran(arm, log_of(work, arm), None if code == slurm.TIMED_OUT else code, order, seconds or 0, lost))
        if ran[-1].failed:
            ran[-1].tail = ran[-1].tail or "\n".join(tail(work / "slurm.log"))
            break
    where = {"job": number, "nodes": job.settings.nodes or 1, "script": str(work / "job.sbatch")}
    return ran, {"slurm": where | {name: getattr(job.settings, name) for name in ("partition", "account")}}


def _record(order: Order, ran: Sequence[Ran], where: Mapping[str, Any]) -> dict[str, Any]:
    """The report: criteria as rows, or why an arm did not come to its end."""
    flag = order.flag
    record: dict[str, Any] = {"kind": "ab", "flag": flag.key, "values": list(flag.values), "command": order.retold}
    record["criteria"] = order.limits.criteria()
    record["environment"] = {"python": platform.python_version(), "platform": platform.platform(), **where}
    record["arms"] = {each.arm.name: _told(each, order) for each in ran}
    if lost := next((each for each in ran if each.failed), None):
        reason = f"arm {lost.arm.name} ({flag.key} {lost.arm.value}) {lost.failed}"
        row = {"family": flag.key, "variant": "", "kind": "run", "name": f"arm {lost.arm.name}", "status": "failed"}
        rows = [row | {"seconds": lost.seconds, "reason": reason, "traceback": lost.tail}]
        phrases = [reason]
    else:
        verdicts = judge(ran[0].log, ran[1].log, order.limits)
        rows = [verdict.row(flag.key) for verdict in verdicts]
        phrases = headline(ran[0].log, ran[1].log, verdicts)
    record |= {"rows": rows, "ok": all(row["status"] == "passed" for row in rows)}
    record["verdict"] = f"{'PASS' if record['ok'] else 'FAIL'}: {'; '.join(phrases)}"
    return record


def _told(ran: Ran, order: Order) -> dict[str, Any]:
    log, arm = asdict(ran.log), ran.arm
    log["losses"] = {
        step: {n: v if isfinite(v) else None for n, v in named.items()} for step, named in log["losses"].items()
    }
    words = [*(f"{name}={value}" for name, value in arm.variables.items()), shlex.join(arm.words)]
    median = middle(ran.log, order.limits.warmup)
    return {"value": arm.value, "command": " ".join(words), "seconds": ran.seconds, "median": median, **log}
