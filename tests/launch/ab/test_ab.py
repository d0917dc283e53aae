"""The same run twice with a flag flipped, on this machine: what is read and judged, and what a failing arm leaves."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.kernel.errors import EVAL_FAILED, USAGE
from skillgen.launch.ab.arms import Flag, arms
from skillgen.launch.ab.judge import Limits, judge
from skillgen.launch.ab.logs import Log, read
from tests.releases import original as released

RECIPE = Path(__file__).with_name("recipe.py")
PRODUCTS = {"bridge": "model.vision_dp_over_cp", "automodel": "--vision_dp_over_cp"}
NAMES = ["the same steps, none skipped", "losses track", "step time does not regress", "peak memory drops"]
NAMES += ["the flag has an effect"]
BRIDGE, AUTOMODEL = "megatron/bridge/training/utils/train_utils.py", "nemo_automodel/recipes/vlm/finetune.py"
BRIDGE_PRINTS = [
    " iteration {:8d}/{:8d} |",
    " elapsed time per iteration (ms): {:.1f} |",
    "number of nan iterations: {:3d}",
]
BRIDGE_PRINTS += ['"mem-max-allocated-bytes"', 'name.replace("bytes", "gigabytes")', " iterations) memory (GB)"]
AUTOMODEL_PRINTS = ["step {} | epoch {} | loss {:.4f} |", "| mem {:.2f} GiB | tps {:.2f}({:.2f}/gpu) |", '"[val] step']


@pytest.fixture
def ab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command; exit code, answer, report."""

    def run(product: str, *words: str, options: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], dict[str, Any]]:
        command = ["ab", f"--flag={PRODUCTS[product]}", "--json", "--report", str(tmp_path / "report"), *options]
        exit_code = main([*command, "--", sys.executable, str(RECIPE), product, *words])
        answer = json.loads(capsys.readouterr().out)
        return exit_code, answer, json.loads((tmp_path / "report/report.json").read_text())

    return run


@pytest.mark.parametrize(
    ("product", "told"),
    [
        (
            "bridge",
            "PASS: step time 13,228 to 12,528 ms per step (-5.3%); peak memory 81.02 to 73.22 GB (-9.6%); losses",
        ),
        (
            "automodel",
            "PASS: step time 201.85 to 191.17 µs per token (-5.3%); peak memory 81.078 to 73.283 GB (-9.6%);",
        ),
    ],
)
def test_a_flag_that_is_worth_it(ab: Any, tmp_path: Path, product: str, told: str) -> None:
    exit_code, answer, record = ab(product)
    assert exit_code == 0 and record["ok"] and record["verdict"].startswith(told)
    assert [row["name"] for row in answer["rows"]] == NAMES and answer["error"] is None
    assert all(row["status"] == "passed" for row in answer["rows"])
    assert [arm["command"][-5:].strip("= ") for arm in record["arms"].values()] == ["false", "true"]
    assert all(len(arm["losses"]) == len(arm["times"]) == 8 for arm in record["arms"].values())
    page = (tmp_path / "report/report.md").read_text()
    assert page.startswith(f"# A/B of `{PRODUCTS[product]}`") and record["verdict"] in page
    assert "| losses track | passed | 0.00" in page and "- peak memory: that of B is below 1 of A's" in page


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize(
    ("fault", "failed", "reason"),
    [
        ("diverges", "losses track", "loss of step"),
        ("slow", "step time does not regress", "1.000 of A's, limit 0.99"),
        ("large", "peak memory drops", "1.000 of A's, not below 1"),
        ("nan", "losses track", " is 1.43"),
    ],
)
def test_a_criterion_that_is_not_met(ab: Any, product: str, fault: str, failed: str, reason: str) -> None:
    exit_code, answer, record = ab(product, f"fault={fault}", "fault-in=on", options=("--step-time", "0.99"))
    assert (exit_code, answer["error"]["code"]) == (EVAL_FAILED, "ab-failed")
    rows = {row["name"]: row for row in record["rows"] if row["status"] == "failed"}
    assert list(rows) == [failed] and reason in rows[failed]["reason"]
    assert record["verdict"].startswith("FAIL: ") and answer["error"]["where"] == failed


def test_an_arm_that_is_off_from_the_start(ab: Any) -> None:
    _, _, record = ab("bridge", options=("--loss", "0.0001"))
    (row,) = [row for row in record["rows"] if row["status"] == "failed"]
    assert row["name"] == "losses track" and "lm loss of step 8 is" in row["reason"]
    text = "iteration {}/ 3 | elapsed time per iteration (ms): {} | lm loss: {} | number of nan iterations: 0 |"
    logs = [read([text.format(step, 100 - arm, 2 + arm) for step in (1, 2, 3)]) for arm in (0, 1)]
    reason = judge(*logs, Limits())[1].reason
    assert reason.endswith("from the first step on, so are seed, data and weights the same?")


@pytest.mark.parametrize(
    ("b", "reason"),
    [
        ([1, 2, 3, 4, 5], "in one arm only: step 5"),
        ([1, 2, 4], "in one arm only: step 3"),
        ([1, 2, 3, -4], "skipped or NaN iterations, B: 1"),
        ([1, 2, 3, 4], ""),
    ],
)
def test_arms_that_did_not_take_the_same_steps(b: list[int], reason: str) -> None:
    text = "iteration {}/ 9 | lm loss: 2.0 | number of skipped iterations: {} |"
    logs = [read([text.format(abs(step), int(step < 0)) for step in steps]) for steps in ([1, 2, 3, 4], b)]
    assert judge(*logs, Limits())[0].reason == reason


def test_a_flag_without_effect_passes_nothing(ab: Any) -> None:
    exit_code, _, record = ab("bridge", "fault=no-effect", options=("--peak-memory", "none"))
    assert exit_code == EVAL_FAILED and len(record["rows"]) == 4
    (row,) = [row for row in record["rows"] if row["status"] == "failed"]
    assert row["name"] == "the flag has an effect" and "context parallelism above 1" in row["reason"]


@pytest.mark.parametrize(
    ("words", "arm", "told"),
    [
        (["fault=dies", "fault-in=on"], "B", "(model.vision_dp_over_cp true) ended with exit code 3"),
        (["fault=dies"], "A", "(model.vision_dp_over_cp false) ended with exit code 3"),
        (["fault=hangs", "fault-in=on"], "B", "did not end within 6 s"),
    ],
)
def test_an_arm_that_fails(ab: Any, tmp_path: Path, words: list[str], arm: str, told: str) -> None:
    exit_code, answer, record = ab("bridge", *words, options=("--timeout", "6"))
    assert (exit_code, answer["error"]["code"]) == (EVAL_FAILED, "ab-died")
    (row,) = record["rows"]
    assert (row["kind"], row["name"], row["status"]) == ("run", f"arm {arm}", "failed") and told in row["reason"]
    last = "out of memory" if "dies" in words[0] else "iteration        3/"
    assert last in row["traceback"] and last in (tmp_path / "report/report.md").read_text()
    assert list(record["arms"]) == ["A", "B"][: "AB".index(arm) + 1]


@pytest.mark.parametrize(("command", "told"), [(["true"], "printed no step"), (["/no/such"], "exit code 127")])
def test_a_command_that_trains_nothing(command: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", "--flag", "a", "--json", "--", *command]) == EVAL_FAILED
    assert told in json.loads(capsys.readouterr().out)["rows"][0]["reason"]


@pytest.mark.parametrize(
    ("text", "words", "variables"),
    [
        ("model.x", (["model.x=false"], ["model.x=true"]), ({}, {})),
        ("model.x=balanced,mcore", (["model.x=balanced"], ["model.x=mcore"]), ({}, {})),
        ("--a.b", (["--a.b", "false"], ["--a.b", "true"]), ({}, {})),
        ("VISION_DP", ([], []), ({"VISION_DP": "0"}, {"VISION_DP": "1"})),
    ],
)
def test_how_a_flag_is_given(text: str, words: Any, variables: Any) -> None:
    both = arms(["run", "--save", "out/{arm}", "{flag}", "last"], Flag.parse(text))
    assert [arm.words for arm in both] == [
        ("run", "--save", f"out/{name}", *given, "last") for name, given in zip("ab", words, strict=True)
    ]
    assert tuple(arm.variables for arm in both) == variables
    assert [arm.words for arm in arms(["run"], Flag.parse(text))] == [("run", *given) for given in words]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--flag", "a=b"], "bad-flag"),
        (["--flag", "a=b,b"], "bad-flag"),
        (["--flag", "a\nid"], "bad-flag"),
        (["--flag", "a=b,c\nid"], "bad-flag"),
        (["--flag", "a"], "no-command"),
        (["--flag", "a", "--target", "."], "no-command"),
        (["--flag", "a", "--recipe", "x"], "no-target"),
        (["--flag", "a", "--step-time", "x"], "usage"),
        (["--flag", "a", "--nnodes", "2"], "no-cluster"),
    ],
)
def test_what_cannot_be_run(options: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", "--json", *options]) == USAGE
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


def test_lines_of_several_ranks_and_of_no_trainer() -> None:
    lines = [
        "2: [default2]: [2026-01-31 12:00] iteration        1/      20 | lm loss: 1.5E+00 | mtp_1 loss: 2.0 | x: y |",
        "[Rank 1] (after 1 iterations) memory (GB) | mem-max-allocated-gigabytes: 8.1e-05",
        "iteration 2/20 | number of skipped iterations:   1 | number of nan iterations:   2 |",
        "step 3 of 4 | epoch: 1 | loss: 7",
    ]
    assert read(lines) == Log(
        "Megatron-Bridge", "ms per step", {1: {"lm loss": 1.5, "mtp_1 loss": 2.0}, 2: {}}, {}, 8.1e-05, 3
    )
    kd = "step 4 | epoch 0 | loss 1.0 | ce_loss 0.5 | kd_loss nan | lr 1e-05 | mem 1.00 GiB | tps 4.00 | kd_ratio 1"
    assert read([kd]).times == {4: 250000.0} and set(read([kd]).losses[4]) == {"loss", "ce_loss", "kd_loss"}
    assert read(["step 4 | epoch 0 | loss 1.0 | train_acc 0.1 | mem 2.00 GiB | time 1.25s"]).times == {4: 1250.0}


def test_a_recipe_of_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under a real torchrun, with the checkout's own package first on the path."""
    package, scripts = tmp_path / "src/megatron/bridge", tmp_path / "scripts/training"
    for folder in (package, scripts):
        folder.mkdir(parents=True)
    (package / "package_info.py").write_text("MAJOR = 0\n")
    (tmp_path / "pyproject.toml").touch()
    (scripts / "run_recipe.py").write_text(
        "import os, runpy, sys\n"
        "from megatron.bridge import package_info\n"
        "assert sys.argv[1:3] == ['--recipe', 'my_recipe'] and os.environ['WORLD_SIZE'] == '1'\n"
        f"sys.argv[1:3] = ['bridge']; sys.path.insert(0, {str(RECIPE.parent)!r})\n"
        f"runpy.run_path({str(RECIPE)!r}, run_name='__main__')\n"
    )
    command = ["ab", "--flag", "vision_dp_over_cp", "--target", str(tmp_path), "--recipe", "my_recipe", "--nproc", "1"]
    report = tmp_path / "report"
    exit_code = main([*command, "--report", str(report), "--", "train.train_iters=8"])
    assert exit_code == 0, capsys.readouterr().out + (report / "a.log").read_text()
    record = json.loads((report / "report.json").read_text())
    assert record["arms"]["B"]["command"].endswith("my_recipe train.train_iters=8 model.vision_dp_over_cp=true")
    assert record["command"].startswith(f"skillgen ab --flag=vision_dp_over_cp --target {tmp_path} --recipe my_recipe")
    assert "PYTHONPATH" not in os.environ or str(package) not in os.environ["PYTHONPATH"]


@pytest.mark.parametrize(
    ("release", "path", "printed"),
    [
        *((f"bridge-{version}", BRIDGE, BRIDGE_PRINTS) for version in ("0.3.1", "0.6.2")),
        *((f"automodel-{version}", AUTOMODEL, AUTOMODEL_PRINTS) for version in ("0.4.0", "0.7.0")),
    ],
)
def test_the_releases_print_so(release: str, path: str, printed: list[str]) -> None:
    text = (released(release) / path).read_text()
    assert [form for form in printed if form not in text] == []
