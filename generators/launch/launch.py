"""Start the ranks of a suite, here or as a Slurm job, and make the report. Needs neither torch nor the target."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.launch import processes, rendezvous
from skillgen.launch.collect import Ending, Progress, Teller, collect
from skillgen.launch.environment import variables

if TYPE_CHECKING:
    from skillgen.launch.slurm import Slurm

UPSTREAM_TESTS = "upstream-tests"  # the kind of case that needs no ranks


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is to be run, on how many ranks and for how long.

    `timeout` ends the run of the ranks, and each of the target's own tests; `limit` is what agreement cases may take
    from their first collective on.
    """

    technique: str
    target: Path
    families: Sequence[str]
    nproc: int = 2  # on each node
    backend: str = "gloo"
    mutate: str | None = None
    baseline: str | None = None
    kinds: Sequence[str] | None = None
    mcore: str | Path | None = None
    python: str = sys.executable
    timeout: float = 900
    limit: float = 20
    nnodes: int = 1
    rdzv_endpoint: str | None = None

    @property
    def upstream(self) -> bool:
        """Whether the target's own tests are part of it: the suite has that kind, and nothing else was asked for."""
        return not self.mutate and UPSTREAM_TESTS in (self.kinds or suite_of(self.technique).KINDS)

    @property
    def needs_ranks(self) -> bool:
        """Whether anything but the target's own tests is part of it."""
        return set(self.kinds or ()) != {UPSTREAM_TESTS}

    def order(self, work: Path, *, shared: bool) -> dict[str, Any]:
        """What the ranks are told; with `shared`, all nodes see the folder, and rank 0 alone writes there."""
        return {
            "technique": self.technique,
            "target": str(self.target.resolve()),
            "families": list(self.families),
            "kinds": list(self.kinds or ()),
            "backend": self.backend,
            "nproc": self.nproc,
            "nnodes": self.nnodes,
            "mutate": self.mutate,
            "baseline": self.baseline,
            "mcore": str(Path(self.mcore).resolve()) if self.mcore else None,
            "limit": self.limit,
            "timeout": self.timeout,
            "result": str(work / "result.json"),
            "progress": str(work / "progress.jsonl"),
            "shared": shared,
        }

    def prepare(self, work: Path, *, shared: bool) -> None:
        """Write the order into the run's folder."""
        (work / "spec.json").write_text(json.dumps(self.order(work, shared=shared)))
        (work / "progress.jsonl").touch()


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


def suite_of(technique: str) -> Any:
    """The suite module of a technique; importing it needs no torch."""
    return importlib.import_module(f"skillgen.evals.{technique.replace('-', '_')}.suite")


def torchrun(
    python: str, nproc: int, nnodes: int, rdzv_endpoint: str | None, work: Path, logs: str = "logs"
) -> list[str]:
    """The command line that starts the ranks of one node."""
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(nproc), "--max-restarts", "0"]
    if rdzv_endpoint:
        command += ["--nnodes", str(nnodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", rdzv_endpoint]
    else:
        command += ["--standalone", "--local-addr", "127.0.0.1"]
    command += ["--log-dir", str(work / logs), "--redirects", "3"]
    return [*command, "-m", "skillgen.evals.kernel.worker", str(work / "spec.json")]


def check(run: Run, slurm: Slurm | None = None) -> None:
    """Refuse what cannot work, and name what to install, before any rank starts and dies of it."""
    if run.nproc * run.nnodes < 2:
        raise SkillgenError("too-few-ranks", f"--nproc {run.nproc}: sharding needs at least 2 ranks", exit_code=USAGE)
    if run.nnodes > 1 and not run.rdzv_endpoint and slurm is None:
        raise SkillgenError("no-rendezvous", f"--nnodes {run.nnodes} needs --rdzv-endpoint HOST:PORT", exit_code=USAGE)
    if run.rdzv_endpoint is not None:
        rendezvous.endpoint(run.rdzv_endpoint, run.nnodes)
    if run.baseline not in (None, "count", "contiguous"):
        message = f"--baseline {run.baseline}: it is count or contiguous"
        raise SkillgenError("no-such-baseline", message, exit_code=USAGE)
    if run.mcore is not None and not (Path(run.mcore) / "megatron" / "core" / "__init__.py").is_file():
        raise SkillgenError(
            "not-megatron-core",
            f"--mcore {run.mcore} holds no megatron/core",
            hint="skillgen fetch pypi:megatron-core==0.19.2 DIR unpacks one",
            exit_code=USAGE,
        )
    if slurm is None or not slurm.settings.container_image:  # nothing is known here of what an image holds
        _need(run.python, run.mcore, run.technique)


def _need(python: str, mcore: str | Path | None, technique: str) -> None:
    """Ask the interpreter of the ranks for what the suite imports."""
    needed: dict[str, str] = {**suite_of(technique).NEEDED, "skillgen.evals": ""}
    if mcore is not None:
        needed.pop("megatron.core", None)
    probe = f"""
import importlib.util as u
def there(name):
    try: return u.find_spec(name) is not None
    except ModuleNotFoundError: return False
print(*[name for name in {list(needed)!r} if not there(name)])
"""
    found = subprocess.run([python, "-c", probe], capture_output=True, text=True)
    if found.returncode:
        raise SkillgenError("no-python", f"{python} does not run: {found.stderr.strip()[-300:]}", exit_code=USAGE)
    missing = found.stdout.split()
    if missing:
        packages = [needed[name] for name in missing if needed[name]]
        hints = [f"pip install {' '.join(packages)}"] if packages else []
        if "megatron.core" in missing:
            hints.append("skillgen fetch pypi:megatron-core==0.19.2 DIR, then --mcore DIR")
        if "skillgen.evals" in missing:
            hints.append(f"install skillgen for {python}")
        raise SkillgenError(
            "missing-dependency",
            f"the eval needs {', '.join(missing)} in {python}",
            hint="; ".join(hints),
            exit_code=USAGE,
        )


def _watch(
    command: list[str], work: Path, timeout: float, progress: Progress | None, backend: str = "gloo"
) -> int | None:
    """Wait for torchrun; its exit code, or None if the time was up and everything was killed."""
    environment = os.environ | variables(backend)
    teller = Teller(work, progress)
    return processes.run(command, work / "torchrun.log", timeout, environment=environment, each=teller)


def retold(run: Run, slurm: Slurm | None, report: str | Path | None) -> str:
    """The command that a reader types to repeat this run; a job is known again from wherever that is."""
    words = ["skillgen", "eval", run.technique, str(run.target.resolve()), "--nproc", str(run.nproc)]
    words += ["--backend", run.backend]
    probed = getattr(suite_of(run.technique), "PROBE", {}).values()
    if list(run.kinds or ()) == ["probe"] and len(run.families) == 1 and run.families[0] in probed:
        words += ["--probe"]
    else:
        words += [word for family in run.families for word in ("--family", family)]
        words += [word for kind in run.kinds or () for word in ("--kind", kind)]
    for option in ("mutate", "baseline"):
        if value := getattr(run, option):
            words += [f"--{option}", str(value)]
    words += ["--mcore", str(Path(run.mcore).resolve())] if run.mcore else []
    if run.nnodes > 1:
        words += ["--nnodes", str(run.nnodes)]
    if slurm is not None:
        if run.python != ("python3" if slurm.settings.container_image else sys.executable):
            words += ["--python", os.path.abspath(run.python) if os.sep in run.python else run.python]
        words += ["--timeout", f"{run.timeout:.15g}"] if run.timeout != Run.timeout else []
        place = str(Path(report or "").resolve())
        words += ["--launcher", "slurm", "--submit", "--report", place, *slurm.settings.words()]
    elif run.rdzv_endpoint:
        words += ["--rdzv-endpoint", run.rdzv_endpoint]
    return re.sub(r"\s+", " ", shlex.join(words))
