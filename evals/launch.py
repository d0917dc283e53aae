"""Start one torchrun for a suite, watch it, and collect what rank 0 wrote. Needs neither torch nor the target."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from skillgen.errors import EVAL_FAILED, USAGE, SkillgenError

UPSTREAM_TESTS = "upstream-tests"  # the kind of case that needs no ranks
TAIL = 12  # last lines of each rank that are shown


def run_suite(
    technique: str,
    target_root: str | Path,
    families: Sequence[str],
    *,
    nproc: int = 2,
    backend: str = "gloo",
    report: str | Path | None = None,
    mutate: str | None = None,
    baseline: str | None = None,
    kinds: Sequence[str] | None = None,
    mcore: str | Path | None = None,
    python: str | None = None,
    timeout: float = 900,
    limit: float = 20,
    nnodes: int = 1,
    rdzv_endpoint: str | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Run a technique's suite on a patched target; the report as a dict, also written to `report` if given.

    `timeout` ends the run of the ranks, and each of the target's own tests; `limit` is what agreement cases may take
    from their first collective on.
    `progress` is called with every row as it comes.

    Raises:
        SkillgenError: the run could not be made or did not come to its end. Failed cases are not an error.
    """
    _check(nproc, nnodes, rdzv_endpoint, baseline)
    interpreter = python or sys.executable
    _need(interpreter, mcore, technique)
    upstream = _upstream_tests(technique, Path(target_root), interpreter, mcore, kinds, mutate, timeout, progress)
    with tempfile.TemporaryDirectory(prefix="skillgen-eval-") as folder:
        work = Path(folder)
        spec = {
            "technique": technique,
            "target": str(Path(target_root).resolve()),
            "families": list(families),
            "kinds": list(kinds or ()),
            "backend": backend,
            "mutate": mutate,
            "baseline": baseline,
            "mcore": str(Path(mcore).resolve()) if mcore else None,
            "limit": limit,
            "result": str(work / "result.json"),
            "progress": str(work / "progress.jsonl"),
        }
        (work / "spec.json").write_text(json.dumps(spec))
        (work / "progress.jsonl").touch()
        started = time.monotonic()
        if kinds and set(kinds) == {UPSTREAM_TESTS}:
            record: dict[str, Any] = {"rows": [], "kinds": list(kinds), "stand_ins": [], "environment": {}}
        else:
            command = torchrun(interpreter, nproc, nnodes, rdzv_endpoint, work)
            record = _collect(work, _watch(command, work, timeout, progress), timeout, nproc)
        record["rows"] = [*upstream, *record["rows"]]
        record["seconds"] = round(time.monotonic() - started + sum(row["seconds"] for row in upstream), 1)
    from .report import finish, write

    record |= {"technique": technique, "target": spec["target"], "families": list(families), "nproc": nproc * nnodes}
    record |= {"backend": backend, "mutate": mutate, "baseline": baseline, "command": _retold(spec, nproc)}
    finish(record)
    if report is not None:
        write(record, Path(report))
    return record


def _upstream_tests(
    technique: str,
    target_root: Path,
    python: str,
    mcore: str | Path | None,
    kinds: Sequence[str] | None,
    mutate: str | None,
    timeout: float,
    progress: Callable[[dict[str, Any]], None] | None,
) -> list[dict[str, Any]]:
    """The row of the target's own tests, where the suite has that kind and nothing else was asked for."""
    suite = suite_of(technique)
    if mutate or UPSTREAM_TESTS not in (kinds or suite.KINDS):
        return []
    from skillgen.evals import upstream

    told = upstream.row(technique, target_root, python=python, mcore=str(mcore) if mcore else None, limit=timeout)
    if progress is not None:
        progress(told)
    return [told]


def suite_of(technique: str) -> Any:
    """The suite module of a technique; importing it needs no torch."""
    return importlib.import_module(f"skillgen.evals.{technique.replace('-', '_')}")


def torchrun(python: str, nproc: int, nnodes: int, rdzv_endpoint: str | None, work: Path) -> list[str]:
    """The command line that starts the ranks."""
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(nproc), "--max-restarts", "0"]
    if nnodes > 1:
        command += ["--nnodes", str(nnodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", str(rdzv_endpoint)]
    else:
        command += ["--standalone", "--local-addr", "127.0.0.1"]
    return [
        *command,
        "--log-dir",
        str(work / "logs"),
        "--redirects",
        "3",
        "-m",
        "skillgen.evals.worker",
        str(work / "spec.json"),
    ]


def _check(nproc: int, nnodes: int, rdzv_endpoint: str | None, baseline: str | None) -> None:
    if nproc * nnodes < 2:
        raise SkillgenError("too-few-ranks", f"--nproc {nproc}: sharding needs at least 2 ranks", exit_code=USAGE)
    if nnodes > 1 and not rdzv_endpoint:
        raise SkillgenError("no-rendezvous", f"--nnodes {nnodes} needs --rdzv-endpoint HOST:PORT", exit_code=USAGE)
    if baseline not in (None, "count", "contiguous"):
        raise SkillgenError("no-such-baseline", f"--baseline {baseline}: it is count or contiguous", exit_code=USAGE)


def _need(python: str, mcore: str | Path | None, technique: str) -> None:
    """Name what to install before any rank starts and dies of it."""
    if mcore is not None and not (Path(mcore) / "megatron" / "core" / "__init__.py").is_file():
        raise SkillgenError(
            "not-megatron-core",
            f"--mcore {mcore} holds no megatron/core",
            hint="skillgen fetch pypi:megatron-core==0.19.2 DIR unpacks one",
            exit_code=USAGE,
        )
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
    command: list[str], work: Path, timeout: float, progress: Callable[[dict[str, Any]], None] | None
) -> int | None:
    """Wait for torchrun; its exit code, or None if the time was up and everything was killed."""
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), "PYTHONFAULTHANDLER": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # the target's tree is the user's
    told = 0
    with open(work / "torchrun.log", "wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True, preexec_fn=_end_with_parent
        )
        try:
            deadline = time.monotonic() + timeout
            while process.poll() is None and time.monotonic() < deadline:
                told = _tell(work, told, progress)
                time.sleep(0.1)
        finally:
            ended = process.poll()
            _kill(process)
    _tell(work, told, progress)
    return ended


def _end_with_parent() -> None:
    """Let Linux ask torchrun to end, which then ends its ranks, when this process is killed and can do nothing."""
    set_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_signal, signal.SIGTERM)


def _tell(work: Path, told: int, progress: Callable[[dict[str, Any]], None] | None) -> int:
    if progress is None:
        return told
    lines = (work / "progress.jsonl").read_text().splitlines(keepends=True)
    complete = [line for line in lines if line.endswith("\n")]
    for line in complete[told:]:
        progress(json.loads(line))
    return len(complete)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and every rank: they share its session but may have process groups of their own."""
    children = _descendants(process.pid)
    for pid in [process.pid, *children] if process.poll() is None else children:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _descendants(root: int) -> list[int]:
    """Process ids of the session that torchrun leads."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == root and int(entry.name) != root:
            found.append(int(entry.name))
    return found


def _collect(work: Path, ended: int | None, timeout: float, nproc: int) -> dict[str, Any]:
    """What rank 0 wrote; with a failed row for the end, where the run did not come to its own."""
    result = work / "result.json"
    record: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {"running": "start-up"}
    if ended == 0 and record["running"] is None:
        return record
    what = f"did not end within {timeout:g} s" if ended is None else f"ended with exit code {ended}"
    message = f"the {nproc} ranks {what}, during {record['running']}"
    if "rows" not in record:
        code = "eval-timed-out" if ended is None else "eval-died"
        raise SkillgenError(code, message, hint=_last_lines(work), exit_code=EVAL_FAILED)
    died = {"family": "all", "variant": "", "kind": "run", "name": record["running"], "status": "failed", "seconds": 0}
    record["rows"].append(died | {"reason": message, "traceback": _last_lines(work)})
    return record


def _last_lines(work: Path) -> str:
    """The last lines of every rank's error output, or of torchrun's where no rank started."""
    parts = []
    for path in sorted(work.glob("logs/*/attempt_*/*/stderr.log"), key=lambda path: int(path.parent.name)):
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        if lines:
            parts.append("\n".join([f"rank {path.parent.name}, last lines:", *lines[-TAIL:]]))
    if not parts:
        parts = (work / "torchrun.log").read_text(errors="replace").splitlines()[-TAIL:]
    return "\n".join(parts)


def _retold(spec: dict[str, Any], nproc: int) -> str:
    """The command that a reader types to repeat this run."""
    words = [
        "skillgen",
        "eval",
        spec["technique"],
        spec["target"],
        "--nproc",
        str(nproc),
        "--backend",
        spec["backend"],
    ]
    for option, values in (("--family", spec["families"]), ("--kind", spec["kinds"])):
        for value in values:
            words += [option, value]
    for option in ("mutate", "baseline", "mcore"):
        if spec[option]:
            words += [f"--{option}", spec[option]]
    return re.sub(r"\s+", " ", shlex.join(words))
