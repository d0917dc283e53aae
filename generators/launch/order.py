"""What is to be run of a suite, checked before anything starts. Needs neither torch nor the target."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.engine.suites import suite_of
from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.kernel.product import beside
from skillgen.launch import rendezvous
from skillgen.launch.environment import told
from skillgen.report.upstream import KIND as UPSTREAM_TESTS

if TYPE_CHECKING:
    from skillgen.launch.slurm import Slurm


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
            "told": told(self.target.resolve(), Path(self.mcore).resolve() if self.mcore else None),
            "result": str(work / "result.json"),
            "progress": str(work / "progress.jsonl"),
            "shared": shared,
        }

    def prepare(self, work: Path, *, shared: bool) -> None:
        """Write the order into the run's folder."""
        (work / "spec.json").write_text(json.dumps(self.order(work, shared=shared)))
        (work / "progress.jsonl").touch()


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
    baselines = getattr(suite_of(run.technique), "BASELINES", ())
    if run.baseline not in (None, *baselines):
        message = f"--baseline {run.baseline}: this technique's eval has {' and '.join(baselines) or 'none'}"
        raise SkillgenError("no-such-baseline", message, exit_code=USAGE)
    core = beside()
    if run.mcore is not None and not (Path(run.mcore) / core.package / "__init__.py").is_file():
        raise SkillgenError(
            f"not-{core.name}",
            f"--{core.option} {run.mcore} holds no {core.package}",
            hint=f"{core.fetched} unpacks one",
            exit_code=USAGE,
        )
    if slurm is None or not slurm.settings.container_image:  # nothing is known here of what an image holds
        _need(run.python, run.mcore, run.technique)


def _need(python: str, mcore: str | Path | None, technique: str) -> None:
    """Ask the interpreter of the ranks for what the suite imports."""
    needed: dict[str, str] = {**suite_of(technique).NEEDED, "skillgen.evals": ""}
    core = beside()
    if mcore is not None:
        needed.pop(core.module, None)
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
        if core.module in missing:
            hints.append(f"{core.fetched}, then --{core.option} DIR")
        if "skillgen.evals" in missing:
            hints.append(f"install skillgen for {python}")
        raise SkillgenError(
            "missing-dependency",
            f"the eval needs {', '.join(missing)} in {python}",
            hint="; ".join(hints),
            exit_code=USAGE,
        )


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
