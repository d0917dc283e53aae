"""Slurm as a login node sees it: what a site wants of a job, submit, wait, cancel. Needs its commands alone."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.launch.collect import Ending
from skillgen.launch.environment import FIXED, VARIABLES, variables

WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
RUNS = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
LIVE = (*WAITS, *RUNS)
TIMED_OUT = 124  # of coreutils' `timeout`, which the job runs its ranks under
FORGOTTEN = "FORGOTTEN"  # ours: neither controller nor accounting knows the job
SPEC = "spec.json"  # in a job's folder: what it was written for
GRACE = 90.0  # seconds after the job should have ended by itself; Slurm looks at time limits every 30 s


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a site wants of a job; None leaves it to the cluster. The fields are the keys of a profile."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    container_image: str | None = None
    container_mounts: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    sbatch: Sequence[str] = ()  # further options, as written after #SBATCH

    def words(self) -> list[str]:
        """The options of the command line that say the same."""
        found = []
        for each in fields(self):
            value = getattr(self, each.name)
            option = "--nnodes" if each.name == "nodes" else f"--{each.name.replace('_', '-')}"
            if each.name == "env":
                found += [word for name, text in value.items() for word in (option, f"{name}={text}")]
            elif each.name == "sbatch":
                found += [f"--sbatch={text}" for text in value]
            elif value is not None:
                found += [option, str(value)]
        return found

    def header(self, name: str, log: Path, seconds: float) -> list[str]:
        """The options of the batch script; a job that was preempted is not started again over what it wrote."""
        minutes = int(seconds // 60) + 2
        wanted = {"job-name": name, "output": _pattern(log), "open-mode": "truncate", "nodes": self.nodes or 1}
        wanted |= {"ntasks-per-node": self.ntasks_per_node or 1, "time": self.time or minutes}
        for option in ("partition", "account", "qos", "gpus-per-node", "cpus-per-task"):
            wanted[option] = getattr(self, option.replace("-", "_"))
        given = [f"--{option}={value}" for option, value in wanted.items() if value is not None]
        return [*given, "--no-requeue", *self.sbatch]

    def srun(self, *paths: Path | str | None, inside: Path | None = None) -> list[str]:
        """The words that start a step; a container gets the folders that the job reads and writes mounted as here."""
        found = ["srun"] + ([f"--cpus-per-task={self.cpus_per_task}"] if self.cpus_per_task else [])
        mounts = [self.container_mounts] if self.container_mounts else []
        if self.container_image:
            found.append(f"--container-image={self.container_image}")
            found += [f"--container-workdir={inside}"] if inside else []
            own = dict.fromkeys(str(Path(path).resolve()) for path in paths if path)
            there = [mount.split(":")[0] for mount in (self.container_mounts or "").split(",")]
            mounts += [f"{path}:{path}" for path in own if path not in there]
        return found + ([f"--container-mounts={','.join(mounts)}"] if mounts else [])


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """How a job is waited for: one that was submitted by hand, or a new one."""

    settings: Settings
    job: str | None = None
    queue_limit: float = 3600
    poll: float = 10


class State(NamedTuple):
    """What Slurm says of a job; `name` is empty while the controller does not answer."""

    name: str
    reason: str = ""
    exit_code: int = 0


def _pattern(path: Path) -> str:
    """A path as the value of --output, where % would begin a pattern."""
    return shlex.quote(str(path).replace("%", "%%"))


def shell(command: Sequence[str], expansions: Mapping[str, str], *, wrap: str = "--") -> str:
    """A command as shell text, a line for each option; `expansions`: words of ours, and what the shell puts there."""
    text = ""
    for word in command:
        if any(ours in word for ours in expansions):
            quoted = '"' + re.sub(r'(["\\$`])', r"\\\1", word) + '"'
            for ours, expansion in expansions.items():
                quoted = quoted.replace(ours, expansion)
        else:
            quoted = shlex.quote(word)
        text += (" \\\n    " if word.startswith(wrap) else " ") + quoted
    return text.strip()


def exports(backend: str, given: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """What a batch script exports: name, value as the shell reads it, and why it is needed."""
    needed = variables(backend, {})
    fixed = {name: value for name, value in needed.items() if name in FIXED}
    for name, value in fixed.items():
        if given.get(name, value) != value:
            message = f"env {name}={given[name]}: the job needs {value}, as {VARIABLES[name][1]}"
            raise SkillgenError("bad-setting", message, exit_code=USAGE)
    ours = [
        (name, value if name in FIXED else f'"${{{name}:-{value}}}"', VARIABLES[name][1])
        for name, value in needed.items()
        if name in FIXED or name not in given
    ]
    return [*((name, shlex.quote(value), "") for name, value in given.items() if name not in fixed), *ours]


def new_folder(work: Path) -> None:
    """An empty folder for a job, where no earlier one may still be writing."""
    earlier = (work / "job").read_text() if (work / "job").is_file() else ""
    if earlier and state(earlier).name in LIVE:
        hint = f"--job {earlier} waits for it; scancel {earlier} ends it"
        raise SkillgenError("job-runs", f"Slurm job {earlier} still has this folder", where=str(work), hint=hint)
    if work.is_dir():
        if not (work / "job.sbatch").is_file() and any(work.iterdir()):
            message = "this folder is needed for the job, and holds something else"
            raise SkillgenError("folder-taken", message, where=str(work), hint="name another --report")
        shutil.rmtree(work)
    work.mkdir(parents=True)


def begin(slurm: Slurm, work: Path, order: Mapping[str, Any], script: Callable[[], Path]) -> str:
    """Submit a new job, or take up one that was submitted by hand, if it is of the same order; its id."""
    if slurm.job is None:
        number = submit(script())
        (work / "job").write_text(number)
        return number
    spec = work / SPEC
    if not spec.is_file():
        hint = "the command without --job writes the batch script there"
        raise SkillgenError("no-such-job", "this folder holds no job", where=str(work), hint=hint, exit_code=USAGE)
    try:
        written = dict(json.loads(spec.read_text()))
    except (ValueError, TypeError):
        hint = "the command without --job writes it anew"
        message = "the order of this job is garbled"
        raise SkillgenError("no-such-job", message, where=str(spec), hint=hint, exit_code=USAGE) from None
    if other := [name for name in order if written.get(name) != order[name]]:
        message = f"the job of this folder was written for another {', '.join(other)}"
        hint = "repeat the options that wrote it, or leave out --job to write another"
        raise SkillgenError("another-job", message, where=str(spec), hint=hint)
    hint = f"run this on a login node of the cluster: Slurm is asked about job {slurm.job}"
    if not shutil.which("scontrol"):
        raise SkillgenError("no-slurm", "there is no scontrol on the PATH", hint=hint, exit_code=USAGE)
    if not state(slurm.job).name:
        raise SkillgenError("no-slurm", f"Slurm does not answer about job {slurm.job}", hint=hint, exit_code=USAGE)
    return slurm.job


def late(ready: Callable[[], object], limit: float = 60) -> None:
    """Give a shared file system time to show what another node wrote."""
    deadline = time.monotonic() + limit
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.5)


def submit(script: Path) -> str:
    """Submit a batch script; the id of the job."""
    try:
        done = subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, text=True)
    except FileNotFoundError:
        hint = f"run this on a login node of the cluster, or submit by hand: sbatch {shlex.quote(str(script))}"
        raise SkillgenError("no-slurm", "there is no sbatch on the PATH", hint=hint, exit_code=USAGE) from None
    if done.returncode:
        message = f"sbatch refuses the job: {done.stderr.strip()[-300:]}"
        raise SkillgenError("sbatch-refused", message, where=str(script), exit_code=USAGE)
    return done.stdout.strip().partition(";")[0]


def state(job: str) -> State:
    """Ask the controller, which forgets a job minutes after its end, and then the accounting, which not all have."""
    told = _ask("scontrol", "show", "job", "-o", job)
    if found := re.search(r"\bJobState=(\w+) Reason=(\S+).* ExitCode=(\d{1,9}):", told):
        return State(found[1], found[2], int(found[3]))
    if "Invalid job id" not in told:
        return State("")
    told = _ask("sacct", "-j", job, "-X", "-n", "-P", "-o", "State,ExitCode")
    found = re.search(r"^(\w+)[^|\n]*\|(\d{1,9}):", told, re.MULTILINE)
    return State(found[1], "", int(found[2])) if found else State(FORGOTTEN)


def _ask(*command: str) -> str:
    """What a command of Slurm says; nothing if it does not answer in time."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def cancel(job: str, limit: float = 60) -> None:
    """End a job, and wait until its processes are gone."""
    _ask("scancel", job)
    deadline = time.monotonic() + limit
    while state(job).name in LIVE and time.monotonic() < deadline:
        time.sleep(0.5)


def wait(slurm: Slurm, job: str, seconds: float, each: Callable[[], None]) -> Ending | None:
    """Wait for the end of a job that should run for `seconds` at most; None if it ended well."""
    queued = heard = time.monotonic()
    started = None
    with _cancelled_if_left(job):
        while True:
            each()
            now, found = time.monotonic(), state(job)
            if found.name in WAITS and now - queued > slurm.queue_limit:
                cancel(job)
                what = (
                    f"did not start within {slurm.queue_limit:g} s: Slurm job {job} was {found.name} ({found.reason})"
                )
                return Ending("eval-not-started", f"{what} and is cancelled")
            if found.name in RUNS:
                started = now if started is None else started
                if now - started > seconds + GRACE:
                    cancel(job)
                    return Ending("eval-timed-out", f"did not end within {seconds:g} s: Slurm job {job} is cancelled")
            if found.name and found.name not in LIVE:
                return _ending(found, f"Slurm job {job}", seconds)
            heard = now if found.name else heard
            if now - heard > seconds + GRACE + (slurm.queue_limit if started is None else 0):
                return Ending("eval-lost", f"are lost: Slurm does not answer about job {job}")
            time.sleep(slurm.poll)


def _ending(found: State, about: str, seconds: float) -> Ending | None:
    if found.name == "COMPLETED":
        return None
    if found.name == FORGOTTEN:
        return Ending("eval-lost", f"are lost: {about} is no longer known")
    if found.name == "TIMEOUT":
        return Ending("eval-timed-out", f"did not end within the time limit of {about}")
    if found.name == "FAILED" and found.exit_code == TIMED_OUT:
        return Ending("eval-timed-out", f"did not end within {seconds:g} s in {about}")
    code = f" with exit code {found.exit_code}" if found.name == "FAILED" else ""
    return Ending("eval-died", f"ended{code}: {about} is {found.name}")


@contextmanager
def _cancelled_if_left(job: str) -> Iterator[None]:
    """Cancel the job if whoever waits is interrupted or asked to end."""

    def asked(*_: object) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, asked) if main else None
    try:
        yield
    except BaseException:
        cancel(job)
        raise
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
