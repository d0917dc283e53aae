"""The recipes of Automodel 0.7.0 publish group and policy; where they forget it, or to take it back, a case fails."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.forking import forked
from tests.vision_frame_sharding.patching import TECHNIQUE, done, released

pytestmark = pytest.mark.evals

FAULTS = {
    "group-not-restored": "fine-tuning, the model raises",
    "distillation-forgotten": "distillation, teacher on ranks of its own",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Recipe cases on the patched code, under "", and under each fault."""
    python = os.environ.get("SKILLGEN_EVAL_PYTHON_AUTOMODEL")
    if not python:
        pytest.skip("SKILLGEN_EVAL_PYTHON_AUTOMODEL names no python with transformers 5.18")
    folder = tmp_path_factory.mktemp("publish")
    tree = released("0.7.0", folder)
    done("apply", tree, families=("qwen3_vl",))
    options: dict[str, Any] = {"technique": TECHNIQUE, "target": str(tree), "mcore": None, "families": ["qwen3_vl"]}
    options |= {"modules": ["recipes.vlm.finetune", "recipes.vlm.kd"], "kinds": ["recipe"]}
    options |= {"backend": "gloo", "baseline": None, "limit": 10, "nproc": 2, "timeout": 240}
    specs = [{**options, "mutate": name} for name in (None, *FAULTS)]
    return dict(zip(["", *FAULTS], forked(folder, specs, python=python), strict=True))


def test_the_patched_recipes_publish(runs: dict[str, dict[str, str]]) -> None:
    assert set(runs[""].values()) == {"passed"} and len(runs[""]) == 8, runs[""]


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_caught(runs: dict[str, dict[str, str]], name: str) -> None:
    assert runs[name][f"qwen3_vl recipe: CP 2, {FAULTS[name]}"] == "failed"
    assert runs[name]["qwen3_vl recipe: without a policy, nothing is switched on"] == "passed"
