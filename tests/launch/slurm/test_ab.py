"""Both arms of an A/B run as one job of a real Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.kernel.errors import EVAL_FAILED, REFUSED
from tests.launch.slurm.conftest import slurm, until

RECIPE = Path(__file__).parents[1] / "ab" / "recipe.py"
CHECKED = 'test "$1" = 1 && case "$2" in localhost:1*) exec "${@:3}" ;; esac'
TRAIN = [sys.executable, str(RECIPE), "bridge"]


def command(report: Path, *options: str, flag: str = "model.vision_dp_over_cp") -> list[str]:
    return ["ab", "--flag", flag, "--launcher", "slurm", "--report", str(report), "--poll", "0.2", "--json", *options]


def told(capsys: pytest.CaptureFixture[str], report: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return json.loads(capsys.readouterr().out), json.loads((report / "report.json").read_text())


def test_both_arms_in_one_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "a report"
    words = ["bash", "-c", CHECKED, "bash", "{nnodes}", "{endpoint}", *TRAIN]
    assert main([*command(report, "--submit", "--account", "mine"), "--", *words]) == 0
    answer, record = told(capsys, report)
    assert [row["status"] for row in answer["rows"]] == ["passed"] * 5
    assert record["verdict"].startswith("PASS: step time 13,228 to 12,528 ms per step (-5.3%); peak memory 81.02 to")
    where = record["environment"]["slurm"]
    assert where["account"] == "mine" and f"JobId={where['job']} " in slurm("scontrol", "show", "job", where["job"])
    assert record["command"].split(" -- ")[0].endswith(f"--report '{report}' --account mine")


def test_a_variable_as_the_flag_and_an_arm_that_dies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Submitted by hand; arm A did well."""
    asked = command(tmp_path, flag="VISION_DP_OVER_CP")
    words = ["--", *TRAIN, "fault=dies", "fault-in=on"]
    assert main([*asked, *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    job = subprocess.run(row["submit"], shell=True, capture_output=True, text=True).stdout.split()[-1]
    assert main([*asked, "--job", job, *words, "other"]) == REFUSED
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "another-job"
    assert main([*asked, "--job", job, *words]) == EVAL_FAILED
    answer, record = told(capsys, tmp_path)
    assert (
        answer["error"]["code"] == "ab-died"
        and "arm B (VISION_DP_OVER_CP 1) ended with exit code 3" in record["verdict"]
    )
    assert "CUDA out of memory" in answer["error"]["hint"] and len(record["arms"]["A"]["losses"]) == 8


def test_an_arm_that_hangs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--submit", "--timeout", "2", "--", *TRAIN, "fault=hangs"]
    assert main(command(tmp_path, *options)) == EVAL_FAILED
    _, record = told(capsys, tmp_path)
    (row,) = record["rows"]
    assert row["kind"] == "run" and "arm A (model.vision_dp_over_cp false) did not end within 2 s" in row["reason"]


def test_a_job_that_is_cancelled_during_arm_b(tmp_path: Path) -> None:
    words = command(tmp_path, "--submit", "--", *TRAIN, "fault=hangs", "fault-in=on")
    waiting = subprocess.Popen([sys.executable, "-m", "skillgen", *words], stdout=subprocess.PIPE)
    log = tmp_path / "slurm" / "b.log"
    until(lambda: log.is_file() and "iteration        3/" in log.read_text())
    slurm("scancel", job := (tmp_path / "slurm" / "job").read_text())
    answer = json.loads(waiting.communicate(timeout=60)[0])
    assert (waiting.returncode, answer["rows"][0]["name"]) == (EVAL_FAILED, "arm B")
    assert f"ended: Slurm job {job} is CANCELLED" in answer["rows"][0]["reason"]
    assert "iteration        3/" in answer["rows"][0]["traceback"]
