"""`skillgen advise`: known answers, refusals, and the shape of what programs get."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.techniques.vision_tp_dp import advice, cost_model
from skillgen.techniques.vision_tp_dp.cost_model import TOWERS, Job, Machine, Tower, cost

QWEN = TOWERS["qwen3-vl"]
LARGE = Tower(hidden=3200, layers=45, intermediate=12800, heads=32, out_hidden=8192)
ADVISE = ["advise", "vision-tp-dp", "--model", "qwen3-vl", "--text-tp", "4"]

Say = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Run the command with --json; exit code and answer."""

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = main([*arguments, "--json"])
        return code, json.loads(capsys.readouterr().out, parse_constant=pytest.fail)

    return run


ANSWERS = {
    "many images, small tower: copies": (QWEN, Job(4, 1, ((448, 448, 64),), microbatches=8), {}, (1, 4)),
    "many images over TP and CP": (QWEN, Job(4, 2, ((448, 448, 64),), microbatches=8), {}, (1, 8)),
    "one image: nothing to share out": (LARGE, Job(8, 1, ((1344, 1344, 1),)), {}, (8, 1)),
    "two images": (LARGE, Job(8, 1, ((1344, 1344, 2),), microbatches=8), {}, (4, 2)),
    "one giant among small ones": (QWEN, Job(4, 1, ((4096, 4096, 1), (224, 224, 12)), microbatches=8), {}, (4, 1)),
    "the memory excludes copies": (QWEN, Job(4, 1, ((448, 448, 16),), microbatches=8), {"memory": 12e9}, (2, 2)),
    "a slow network": (
        QWEN,
        Job(4, 1, ((1024, 1024, 3),), microbatches=64),
        {"machine": Machine(400e12, 1e9)},
        (1, 4),
    ),
    "a large tower, one microbatch a step": (LARGE, Job(4, 1, ((224, 224, 4),)), {}, (4, 1)),
    "text TP 1": (QWEN, Job(1, 4, ((448, 448, 8),)), {}, (1, 4)),
    "heads that do not divide": (Tower(1152, 27, 4304, 6, 2048), Job(4, 1, ((448, 448, 1),)), {}, (2, 2)),
    "asked for one degree": (QWEN, Job(4, 1, ((448, 448, 64),)), {"only": 4}, (4, 1)),
}


@pytest.mark.parametrize(("tower", "job", "options", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_known_answers(tower: Tower, job: Job, options: dict[str, Any], expected: tuple[int, int]) -> None:
    found = advice.recommend(tower, job, **options)
    best = found.fitting[0]
    assert (best.vision_tp, best.vision_dp) == expected
    assert found.reason.startswith(f"{advice.name(best)} takes ") and "\n" not in found.reason
    assert [mode.seconds for mode in found.fitting] == sorted(mode.seconds for mode in found.fitting)


REASONS = {
    "one giant among small ones": "computes",
    "many images, small tower: copies": "exchanges all-reduces inside the tower",
    "a large tower, one microbatch a step": "sums the gradients of its copies",
    "the memory excludes copies": "TP 1 x DP 4 would take",
    "text TP 1": "the only mode",
}


@pytest.mark.parametrize(("case", "words"), REASONS.items())
def test_the_reason_is_the_one_that_decides(case: str, words: str) -> None:
    tower, job, options, _ = ANSWERS[case]
    assert words in advice.recommend(tower, job, **options).reason


def test_released_is_every_image_on_every_cp_rank() -> None:
    job = Job(4, 2, ((448, 448, 8),))
    released = advice.recommend(QWEN, job).released
    assert released is not None and (released.vision_tp, released.vision_dp, released.gathered_bytes) == (4, 1, 0)
    assert released.patches == 8 * 28 * 28 == 2 * cost(QWEN, job, 4).patches
    assert advice.recommend(Tower(1152, 27, 4304, 6, 2048), job).released is None


def test_blocks_have_one_size_and_a_filled_fraction() -> None:
    job = Job(4, 1, ((448, 448, 3), (224, 224, 2)), block_patches=1024)
    mode = cost(QWEN, job, 1)
    patches = 3 * 784 + 2 * 196
    assert mode.patches == 1024 and mode.filled == pytest.approx(patches / 4096)
    assert mode.gathered_bytes == 2 * 4096 // 4 * 3584 * 4
    assert cost(QWEN, job, 4).filled is None


def test_deviations_are_checks_that_a_wrong_measurement_fails() -> None:
    job = Job(4, 1, ((448, 448, 8),))
    right = advice.predicted(QWEN, job, 2)
    assert all(value == 0 for value, _ in advice.deviations(QWEN, job, 2, right).values())
    assert right["replica gradient bytes"] > 0 == advice.predicted(QWEN, job, 4)["replica gradient bytes"]
    for what in right:
        checks = advice.deviations(QWEN, job, 2, {**right, what: 1.03 * right[what] + 1})
        assert [value > limit for value, limit in checks.values()].count(True) == 1


def test_json_has_a_row_per_mode_the_recommendation_first(say: Say) -> None:
    code, answer = say(*ADVISE, "--cp", "2", "--images", "1024x768x8", "--images", "224x224")
    rows = answer["rows"]
    assert code == 0 and answer["ok"] and answer["error"] is None and answer["target"] is None
    assert [row["outcome"] for row in rows] == ["recommended", "runner-up", "fits", "released"]
    assert sorted((row["vision_tp"], row["vision_dp"]) for row in rows[:3]) == [(1, 8), (2, 4), (4, 2)]
    assert rows[0]["reason"] and not any(row["reason"] for row in rows[1:])
    assert rows[0]["total_ms"] <= rows[1]["total_ms"] <= rows[2]["total_ms"]
    kept = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes")
    assert all(row["memory_bytes"] == sum(row[name] for name in kept) for row in rows)
    numbers = ("patches", "flops", "forward_bytes", "backward_bytes", "step_bytes", "gathered_bytes")
    assert all(type(row[name]) is int for row in rows for name in numbers)


def test_the_options_reach_the_model(say: Say) -> None:
    given = ["--hidden", "64", "--layers", "2", "--heads", "4", "--intermediate", "96", "--out-hidden", "32"]
    given += ["--patch-size", "8", "--merge-size", "4", "--deepstack", "1", "--dtype", "fp32", "--recompute"]
    given += ["--dp", "2", "--microbatches", "3", "--tflops", "2", "--gbps", "3", "--vision-tp", "2"]
    code, answer = say("advise", "vision-tp-dp", "--text-tp", "4", "--images", "64x96x5", *given)
    tower = Tower(64, 2, 96, 4, 32, deepstack=1, patch_size=8, merge_size=4)
    job = Job(4, 1, ((64, 96, 5),), dp=2, microbatches=3, dtype="fp32", recompute=True)
    mode = cost(tower, job, 2, Machine(2e12, 3e9))
    assert code == 0 and answer["rows"][0]["vision_tp"] == 2 and len(answer["rows"]) == 1
    assert {key: answer["rows"][0][key] for key in vars(mode)} == vars(mode)


def test_no_mode_fits(say: Say) -> None:
    code, answer = say(*ADVISE, "--images", "1024x1024x4", "--memory-gb", "0.5")
    assert code == 3 and answer["error"]["code"] == "no-mode-fits" and answer["error"]["where"] == "--memory-gb 0.5"
    assert {row["outcome"] for row in answer["rows"]} == {"too-large"}
    assert answer["rows"][0]["memory_bytes"] == min(row["memory_bytes"] for row in answer["rows"])


BLOCKS = ["--images", "64x64", "--block-patches"]
ERRORS = {
    "no images": ([], "no-images", "--images"),
    "words for images": (["--images", "large"], "bad-images", "'large'"),
    "no such image": (["--images", "0x224"], "bad-images", "positive"),
    "no tower": (["--model=", "--images", "64x64"], "unknown-model", "qwen3-vl"),
    "a degree that does not divide": (["--images", "64x64", "--vision-tp", "3"], "bad-degree", "--text-tp 4, got 3"),
    "no degree": (["--images", "64x64", "--vision-tp", "0"], "bad-degree", "got 0"),
    "heads that vision TP cuts": (
        ["--images", "64x64", "--heads", "18", "--vision-tp", "4"],
        "bad-degree",
        "heads 18",
    ),
    "heads that hidden has not": (["--images", "64x64", "--heads", "7"], "bad-size", "--hidden 1152, got 7"),
    "too many levels": (["--images", "64x64", "--deepstack", "28"], "bad-size", "27 layers, got 28"),
    "no rank": (["--images", "64x64", "--cp", "0"], "bad-size", "--cp must be from 1 to 131072 ranks, got 0"),
    "no memory": (["--images", "64x64", "--memory-gb", "nan"], "bad-size", "--memory-gb must be from 0.001 to"),
    "an image below a window": (["--images", "64x64", "--images", "31x640"], "bad-size", "--images 31x640: a side is"),
    "a window above an image": (
        ["--images", "1024x768", "--merge-size", "1000"],
        "bad-size",
        "shorter than the 16000 pixels of a merge window (--patch-size 16 x --merge-size 1000)",
    ),
    "a patch above an image": (["--images", "1024x768x8", "--patch-size", "2000"], "bad-size", "the 4000 pixels"),
    "an endless image": (["--images", "64x" + "6" * 5000], "bad-images", "up to 1000000"),
    "an endless number of images": (["--images", "64x64x1000001"], "bad-images", "up to 1000000"),
    "a block smaller than an image": ([*BLOCKS, "8"], "bad-size", "at least the largest image's 16, got 8"),
    "a block that cuts a window": ([*BLOCKS, "18"], "bad-size", "multiple of the 4 patches"),
}


@pytest.mark.parametrize(("arguments", "error", "words"), ERRORS.values(), ids=ERRORS)
def test_usage_errors_name_what_was_wrong(say: Say, arguments: list[str], error: str, words: str) -> None:
    code, answer = say(*ADVISE, *arguments)
    assert code == 2 and not answer["ok"] and answer["rows"] == [] and answer["error"]["code"] == error
    assert words in answer["error"]["message"] + answer["error"]["hint"]


SIZES = ["hidden", "layers", "intermediate", "heads", "out-hidden", "patch-size", "merge-size", "microbatches"]
RANGES = {name: (f"from 1 to {10**6}", ["0", "-1", str(10**6 + 1), "1" + "0" * 400]) for name in SIZES}
RANGES |= {"deepstack": (f"from 0 to {10**6}", ["-1"])}
RANGES |= {"block-patches": (f"from 1 to {10**9}", ["0", "1" + "0" * 400])}
RANGES |= {name: ("from 1 to 131072 ranks", ["0", "131073"]) for name in ("cp", "dp")}
FLOATS = ["0", "-1", "1e-320", "1e-4", "1e7", "inf", "nan", "-inf"]
RANGES |= dict.fromkeys(("tflops", "gbps", "memory-gb"), ("from 0.001 to 1000000.0", FLOATS))


@pytest.mark.parametrize(
    ("option", "told", "value"),
    [(f"--{name}", told, value) for name, (told, values) in RANGES.items() for value in values],
)
def test_a_number_out_of_range_is_named_with_its_range(say: Say, option: str, told: str, value: str) -> None:
    code, answer = say(*ADVISE, "--images", "64x64", f"{option}={value}")
    assert code == 2 and answer["error"]["code"] == "bad-size"
    assert answer["error"]["message"].startswith(f"{option} must be {told}, got ")


@pytest.mark.parametrize("extreme", [{"tflops": "0.001", "gbps": "0.001"}, {"tflops": "1e6", "gbps": "1e6"}], ids=str)
def test_at_the_ends_of_the_ranges_every_figure_is_a_number(say: Say, extreme: dict[str, str]) -> None:
    words = [word for name, value in extreme.items() for word in (f"--{name}", value)]
    words += [f"--{name}={10**6}" for name in ("hidden", "layers", "heads", "out-hidden", "microbatches")]
    assert say(*ADVISE, "--images", "1000000x1000000x1000000", *words)[0] == 0


@pytest.mark.parametrize(
    ("technique", "error", "hint"),
    [("vision-dp-over-cp", "no-advice", "vision-tp-dp"), ("ring-attention", "unknown-technique", "one of")],
)
def test_it_says_which_techniques_have_advice(say: Say, technique: str, error: str, hint: str) -> None:
    code, answer = say("advise", technique, "--text-tp", "4", "--images", "64x64")
    assert code == 2 and answer["error"]["code"] == error and hint in answer["error"]["hint"]


def test_the_sizes_of_a_tower_must_come_from_somewhere(say: Say) -> None:
    code, answer = say("advise", "vision-tp-dp", "--text-tp", "4", "--images", "64x64", "--hidden", "64")
    assert code == 2 and answer["error"]["code"] == "no-tower" and "--layers" in answer["error"]["hint"]


def test_advice_needs_no_torch(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(cost_model.PLANNING)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert say(*ADVISE, "--images", "64x64")[0] == 0
    assert say(*ADVISE, *BLOCKS, "64")[0] == 0


def test_people_get_a_table_and_the_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*ADVISE, "--images", "1024x768x8"]) == 0
    shown = capsys.readouterr().out
    assert "recommended" in shown and "TP 1 x DP 4 takes" in shown and "as released: " in shown


@pytest.mark.parametrize("ranks", [("--text-tp", "1000000007"), ("--text-tp", "4", "--cp", "100000000")], ids=" ".join)
def test_ranks_that_no_cluster_has_are_refused(say: Say, ranks: tuple[str, ...]) -> None:
    code, answer = say("advise", "vision-tp-dp", "--model", "qwen3-vl", "--images", "32x32", *ranks)
    assert code == 2 and answer["error"]["code"] == "bad-size" and "ranks" in answer["error"]["message"]


@pytest.mark.parametrize(("images", "gains"), [("1024x768x8", True), ("32x32", False)])
def test_people_are_told_where_nothing_gains(capsys: pytest.CaptureFixture[str], images: str, gains: bool) -> None:
    assert main([*ADVISE, "--cp", "2", "--images", "1024x768" if not gains else images, "--images", images]) == 0
    assert ("leave it as it is" in capsys.readouterr().out) is not gains


def test_help_and_advice_import_no_torch() -> None:
    code = "import sys; from skillgen.cli.parser import main\nmain({!r})\nprint('LOADED', 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code.format([*ADVISE, "--images", "64x64"])], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "LOADED False"
