"""Evals as jobs of a real Slurm: submitted and collected, and every way in which a job may not come to its end."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.kernel.errors import EVAL_FAILED, INTERRUPTED, USAGE
from skillgen.report.read import fault
from tests.launch.slurm.conftest import RANKS, Submitted, script, slurm, until
from tests.releases import original as released

Submit = Callable[..., Submitted]


@pytest.fixture(scope="module", autouse=True)
def limited(tmp_path_factory: pytest.TempPathFactory, patched: Path, sleeper: str) -> Iterator[Submitted]:
    """A job over its time limit: a minute is the least, so it runs beside the others and holds one of two CPUs."""
    report = tmp_path_factory.mktemp("limited") / "report"
    job = Submitted(patched, report, "--python", sleeper, "--time", "1", "--partition", "urgent")
    until(job.runs)
    yield job
    job.process.terminate()
    job.process.wait()


def failed(ended: tuple[int, dict[str, Any], dict[str, Any]], code: str) -> dict[str, Any]:
    """The row of a run that did not come to its end, in a report that says so."""
    exit_code, answer, record = ended
    assert (exit_code, answer["error"]["code"]) == (EVAL_FAILED, code), answer
    row = record["rows"][-1]
    assert (row["kind"], row["status"]) == ("run", "failed")
    assert fault(record) == "" and not record["ok"] and record["verdict"].startswith("FAIL: ")
    return row


def test_a_job_ends_like_a_local_run(submit: Submit) -> None:
    job = submit("--python", RANKS, "--kind", "crash", "--env", "GLOO_SOCKET_IFNAME=lo", "--account", "mine")
    exit_code, answer, record = job.ended(180)
    assert (exit_code, answer["error"]) == (0, None), answer
    assert [(row["kind"], row["status"]) for row in answer["rows"]] == [("crash", "passed")]
    assert record["verdict"].startswith("PASS: 1 passed, 0 failed, 0 skipped on 2 ranks (gloo)")
    assert record["environment"]["slurm"] == {
        "job": job.job,
        "nodes": 1,
        "script": str(job.report / "slurm" / "job.sbatch"),
        "partition": None,
        "account": "mine",
    }
    assert record["environment"]["variables"]["GLOO_SOCKET_IFNAME"] == "lo"
    assert "--launcher slurm --submit" in record["command"] and "--account mine" in record["command"]


def test_a_rank_that_dies(submit: Submit, tmp_path: Path) -> None:
    """Rank 1 goes as soon as rank 0 has begun with the cases."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, sys, threading\n"
        "def die():\n"
        f"    begun = pathlib.Path({str(tmp_path / 'report' / 'slurm' / 'result.json')!r})\n"
        "    while not begun.exists(): pass\n"
        "    print('last words', file=sys.stderr, flush=True)\n"
        "    os._exit(7)\n"
        "if os.environ.get('RANK') == '1': threading.Thread(target=die, daemon=True).start()\n"
    )
    row = failed(submit("--python", RANKS, "--env", f"PYTHONPATH={tmp_path}").ended(180), "eval-failed")
    assert "is FAILED, during qwen3_5_moe" in row["reason"]
    assert "node 0, local rank 1, last lines:\nlast words" in row["traceback"]


def test_ranks_that_hang(submit: Submit, sleeper: str) -> None:
    row = failed(submit("--python", sleeper, "--timeout", "2").ended(), "eval-timed-out")
    assert "did not end within 2 s" in row["reason"] and "torchrun hangs" in row["traceback"]


def test_a_job_that_is_cancelled(submit: Submit, sleeper: str) -> None:
    job = submit("--python", sleeper)
    until(job.runs)
    slurm("scancel", job.job)
    row = failed(job.ended(), "eval-died")
    assert f"Slurm job {job.job} is CANCELLED, during start-up" in row["reason"]


def test_a_job_that_is_preempted(submit: Submit, sleeper: str) -> None:
    """By one of two that have to go first, as there may be a CPU for the other."""
    job = submit("--python", sleeper)
    until(job.runs)
    urgent = ["sbatch", "--parsable", "--partition", "urgent", "--output", "/dev/null", "--wrap", "sleep 300"]
    others = [slurm(*urgent), slurm(*urgent)]
    try:
        assert "is PREEMPTED" in failed(job.ended(), "eval-died")["reason"]
    finally:
        slurm("scancel", *others)


def test_a_job_that_never_starts(submit: Submit, sleeper: str) -> None:
    job = submit("--python", sleeper, "--sbatch=--begin=now+1hour", "--queue-limit", "2")
    row = failed(job.ended(), "eval-not-started")
    assert "did not start within 2 s" in row["reason"] and "PENDING (BeginTime) and is cancelled" in row["reason"]
    assert "JobState=CANCELLED" in slurm("scontrol", "show", "job", job.job)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_waiting_cancels_the_job(submit: Submit, sleeper: str, how: signal.Signals) -> None:
    job = submit("--python", sleeper)
    until(job.runs)
    job.process.send_signal(how)
    exit_code, answer, _ = job.ended()
    assert (exit_code, answer["error"]["code"]) == (INTERRUPTED, "interrupted")
    assert "JobState=CANCELLED" in slurm("scontrol", "show", "job", job.job)


def test_a_job_that_is_submitted_by_hand(patched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in a folder whose name the shell and sbatch would take for something else."""
    report = tmp_path / "it's 100%j $HOME"
    ranks = f"echo died there >&2; touch '{tmp_path}/seen'; exit 3"
    command = ["eval", "blockdiag-gqa", str(patched), "--launcher", "slurm", "--report", str(report), "--json"]
    command += ["--poll", "0.2", "--python", script(tmp_path / "python", ranks)]
    assert main(command) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["text"] == Path(row["script"]).read_text() and not (tmp_path / "seen").exists()
    job = subprocess.run(row["submit"], shell=True, capture_output=True, text=True).stdout.split()[-1]
    assert main([*command, "--job", job]) == EVAL_FAILED
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "eval-died" and "with exit code 3" in error["message"] and "died there" in error["hint"]
    assert main([*command, "--nproc", "4", "--job", job]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "another-job"


def test_the_targets_own_tests_are_a_step_of_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wheel holds none, which only the step that looks for them can tell."""
    tree = tmp_path / "tree"
    shutil.copytree(released("bridge-0.6.2"), tree)
    assert main(["apply", "vision-dp-over-cp", str(tree), "--family", "ministral3"]) == 0
    capsys.readouterr()
    command = ["eval", "vision-dp-over-cp", str(tree), "--kind", "upstream-tests", "--json", "--poll", "0.2"]
    command += ["--launcher", "slurm", "--submit", "--report", str(tmp_path / "report")]
    assert main([*command, "--mcore", str(released("core-0.19.2"))]) == EVAL_FAILED
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"]["code"] == "nothing-proven"
    assert "a wheel without tests/unit_tests holds none" in answer["rows"][0]["reason"]


def test_a_folder_in_which_a_job_still_runs(
    submit: Submit, sleeper: str, capsys: pytest.CaptureFixture[str], patched: Path
) -> None:
    job = submit("--python", sleeper)
    until(job.runs)
    assert main(["eval", "blockdiag-gqa", str(patched), "--launcher", "slurm", "--report", str(job.report)]) == 3
    assert f"skillgen: job-runs: Slurm job {job.job} still has this folder" in capsys.readouterr().err


def test_a_partition_that_there_is_not(submit: Submit) -> None:
    exit_code, answer, _ = submit("--partition", "nowhere").ended()
    assert (exit_code, answer["error"]["code"]) == (USAGE, "sbatch-refused")
    assert "invalid partition" in answer["error"]["message"]


def test_a_job_over_its_time_limit(limited: Submitted) -> None:
    row = failed(limited.ended(150), "eval-timed-out")
    assert f"did not end within the time limit of Slurm job {limited.job}" in row["reason"]
