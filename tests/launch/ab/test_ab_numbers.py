"""Numbers that are none: in a log whose ranks print over each other, and in options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.kernel.errors import EVAL_FAILED, USAGE
from skillgen.launch.ab.judge import Limits, headline, judge
from skillgen.launch.ab.logs import read
from skillgen.launch.ab.run import left_by

BRIDGE = "iteration 1/ 9 | elapsed time per iteration (ms): {} | lm loss: {} | number of skipped iterations: {} |"
AUTOMODEL = "step 1 | epoch 0 | loss {} | lr 1e-05 | mem {} GiB | tps {}(1.00/gpu) | num_label_tokens 4"
MEMORY = "[Rank 0] (after 1 iterations) memory (GB) | mem-max-allocated-gigabytes: {}"


@pytest.mark.parametrize("loss", ["2.3E+00[Rank 1] ", "abc", "1.2.3", "1_0", "", "2.3E+"])
def test_a_loss_that_is_no_number_is_no_loss(loss: str) -> None:
    log = read([BRIDGE.format("812.5", loss, 0)])
    assert log.losses == {1: {}} and log.times == {1: 812.5}
    assert read([AUTOMODEL.format(loss, "1.00", "4.00")]).losses == {1: {}}


@pytest.mark.parametrize("time", ["8x12", "1.2.3", "1,200.00", "nan", "inf", "1.7e308", "0", "-1"])
def test_a_time_that_is_none_does_not_count(time: str) -> None:
    log = read([BRIDGE.format(time, "2.5E+00", "  1[Rank 3]")])
    assert log.times == {} and log.losses == {1: {"lm loss": 2.5}} and log.bad == 1
    log = read([AUTOMODEL.format("2.5", "1.00", time)])
    assert log.times == {} and log.losses == {1: {"loss": 2.5}}


@pytest.mark.parametrize("memory", ["1.2.3", "1,200.00", "1.2[Rank", "1e999", "1.7e308"])
def test_a_peak_that_is_no_number_does_not_count(memory: str) -> None:
    assert read([MEMORY.format(memory), AUTOMODEL.format("2.5", memory, "4.00")]).memory is None


def test_a_garbled_line_is_a_failure_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    line = BRIDGE.format("812.5", "2.3E+00[Rank 1] ", 0)
    assert main(["ab", "--flag", "A", "--json", "--warmup", "0", "--", "echo", line]) == EVAL_FAILED
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["losses track"]["status"] == "failed" and "step 1 is nan" in rows["losses track"]["reason"]


DIGITS = "9" * 5000  # more than int() takes


def test_a_number_that_goes_on_and_on_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [BRIDGE.replace(old, new).format("1.0", "2.0", 0) for old, new in (("1/", f"{DIGITS}/"), ("9 ", DIGITS))]
    assert read(lines).losses == {}
    assert read([AUTOMODEL.replace("step 1", f"step {DIGITS}").format("2.5", "1.00", "4.00")]).losses == {}
    log = read([BRIDGE.format("812.5", "2.5", DIGITS)])
    assert log.losses == {1: {"lm loss": 2.5}} and log.bad == 0
    line = f"iteration {DIGITS}/ 12 | lm loss: {DIGITS} |\niteration 1/ 12 | lm loss: {DIGITS} |"
    command = ["ab", "--flag", "A", "--json", "--report", str(tmp_path), "--", "echo", line]
    assert main(command) == EVAL_FAILED and json.loads(capsys.readouterr().out)["error"]["code"] == "ab-failed"
    report = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert report["arms"]["A"]["losses"] == {"1": {"lm loss": None}}


@pytest.mark.parametrize("left", ["", "0\n", "zero 5\n", f"{DIGITS} 5\n", "0 5 6\n"])
def test_an_exit_code_that_a_job_left_half_written(tmp_path: Path, left: str) -> None:
    (tmp_path / "a.code").write_text(left)
    assert left_by(tmp_path / "a.code") is None
    (tmp_path / "a.code").write_text("0 5\n")
    assert left_by(tmp_path / "a.code") == (0, 5)


def test_losses_may_go_unjudged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [read([BRIDGE.format(time, loss, 0)]) for time, loss in (("100.0", "2.0"), ("90.0", "9.0"))]
    limits = Limits(loss=None, peak_memory=None, warmup=0)
    verdicts = judge(*logs, limits)
    assert not any(verdict.reason for verdict in verdicts) and judge(*logs, Limits(warmup=0))[1].reason
    assert headline(*logs, verdicts) == ["step time 100 to 90 ms per step (-10.0%)"]
    assert not any("losses" in text for text in limits.criteria())
    command = ["ab", "--flag", "A", "--json", "--report", str(tmp_path), "--loss", "none", "--step-time", "none"]
    main([*command, "--", "echo", BRIDGE.format("100.0", "2.0", 0)])
    assert "losses track" not in {row["name"] for row in json.loads(capsys.readouterr().out)["rows"]}
    told = json.loads((tmp_path / "report.json").read_text())["command"]
    assert "--loss none --step-time none --peak-memory 1 " in told


WRONG = [("--poll", "-1"), ("--poll", "nan"), ("--poll", "0"), ("--timeout", "nan"), ("--timeout", "0")]
WRONG += [("--timeout", "-1"), ("--timeout", "1e308"), ("--nproc", "0"), ("--queue-limit", "-1"), ("--nnodes", "0")]
WRONG += [("--poll", "1e-320"), ("--timeout", "1e-320")]
WRONG += [("--queue-limit", "inf"), ("--cpus-per-task", "0"), ("--gpus-per-node", "-1")]
OF_AB = [("--loss", "-1"), ("--loss", "nan"), ("--loss", "x"), ("--warmup", "-3"), ("--step-time", "nan")]
OF_AB += [("--loss", "1e308"), ("--loss", "1e-320")]
OF_AB += [("--peak-memory", "0")]


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [(command, *wrong) for command in ("ab", "eval") for wrong in WRONG] + [("ab", *wrong) for wrong in OF_AB],
)
def test_an_option_that_is_out_of_range(command: str, option: str, value: str, capsys: Any, tmp_path: Path) -> None:
    rest = ["--flag", "A", "--", "true"] if command == "ab" else ["vision-dp-over-cp", str(tmp_path)]
    assert main([command, "--json", option, value, *rest]) == USAGE
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "usage" and option in error["message"] and repr(value) in error["message"]
