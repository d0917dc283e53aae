"""The tower cases on Automodel 0.7.0: they pass on the patched code, and fail on every fault that is put into it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.forking import forked
from tests.vision_frame_sharding.patching import TECHNIQUE, done, released

pytestmark = pytest.mark.evals

FAMILIES = ("glm5_next", "minimax_m3_vl", "qwen3_vl")
FAULTS: dict[str, tuple[str, list[str], str]] = {
    "cut-entry": ("minimax_m3_vl", ["parity"], "minimax_m3_vl parity: CP 2, video of 5 frames"),
    "sum-dropped": ("glm5_next", ["parity"], "glm5_next parity: CP 2, 3 images"),
    "frame-order": ("qwen3_vl", ["parity"], "qwen3_vl parity: CP 2, images and videos"),
    "threshold-per-rank": ("glm5_next", ["parity"], "glm5_next parity: CP 2, few rows, but enough frames"),
    "digest": ("qwen3_vl", ["agreement"], "qwen3_vl agreement: CP 2, a rank has another order"),
    "no-agree": ("qwen3_vl", ["agreement"], "qwen3_vl agreement: CP 2, a rank's tower raises"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Automodel 0.7.0 with three families patched."""
    patched = released("0.7.0", tmp_path_factory.mktemp("towers"))
    done("apply", patched, families=FAMILIES)
    return patched


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has what Automodel 0.7.0 imports."""
    found = os.environ.get("SKILLGEN_EVAL_PYTHON_AUTOMODEL")
    if not found:
        pytest.skip("SKILLGEN_EVAL_PYTHON_AUTOMODEL names no python with transformers 5.18")
    return found


def spec(tree: Path, families: tuple[str, ...], kinds: list[str], mutate: str | None = None) -> dict[str, Any]:
    options = {"technique": TECHNIQUE, "target": str(tree), "mcore": None, "families": list(families), "kinds": kinds}
    return options | {"backend": "gloo", "mutate": mutate, "baseline": None, "limit": 10, "nproc": 2, "timeout": 240}


@pytest.fixture(scope="module")
def runs(tree: Path, python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The suite on the patched code, under "", and under each fault."""
    specs = [spec(tree, FAMILIES, ["parity", "agreement"])]
    specs.append(spec(tree, FAMILIES, ["parity"]) | {"rounding_by_rows": True})
    specs += [spec(tree, (family,), kinds, name) for name, (family, kinds, _) in FAULTS.items()]
    return dict(
        zip(["", "rounding", *FAULTS], forked(tmp_path_factory.mktemp("runs"), specs, python=python), strict=True)
    )


def test_the_patched_towers_pass(runs: dict[str, dict[str, str]]) -> None:
    rows = runs[""]
    assert not {"failed", "died", "skipped"} & set(rows.values()), rows
    assert {name.partition(" ")[0] for name in rows} == set(FAMILIES)
    assert len(rows) >= 65
    assert rows["qwen3_vl parity: CP 2, 8 images"] == "passed"
    assert rows["glm5_next agreement: CP x TP, a trainable tower is refused"] == "passed"


def test_products_may_round_by_the_number_of_their_rows(runs: dict[str, dict[str, str]]) -> None:
    assert set(runs["rounding"].values()) == {"passed"}, runs["rounding"]
    assert len(runs["rounding"]) >= 50


def test_the_gate_rejects_frames_that_see_each_other(runs: dict[str, dict[str, str]]) -> None:
    forced = {name: status for name, status in runs[""].items() if "forced to cut frames" in name}
    assert forced == {
        "minimax_m3_vl control: CP 2, forced to cut frames, images must pass": "passed",
        "minimax_m3_vl control: CP 2, forced to cut frames, video of 5 frames must fail": "passed",
    }


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_caught(runs: dict[str, dict[str, str]], name: str) -> None:
    assert runs[name][FAULTS[name][2]] == "failed"


def test_the_plans_beat_those_of_upstream(tree: Path, python: str, tmp_path: Path) -> None:
    (rows,) = forked(tmp_path, [spec(tree, ("qwen3_vl",), ["compare"])], python=python)
    slow = {"qwen3_vl compare: planning time"}  # a machine may be busy
    assert not {"failed", "died", "skipped"} & {status for name, status in rows.items() if name not in slow}, rows
    assert len(rows) == 22
