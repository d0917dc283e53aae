"""Hugging Face's vision weights in and out of patched models, at any vision TP and on every pipeline stage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.vision_tp_dp.targets import original, release, run

pytestmark = pytest.mark.evals

SCRIPT = Path(__file__).with_name("converted.py")


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """0.6.2 with the patch; read only."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    original("core-0.19.2")
    root = release("bridge-0.6.2", tmp_path_factory.mktemp("patched"))
    assert run("apply", root) == 0
    return root


def convert(target: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-B", "-W", "ignore", str(SCRIPT), str(target), str(original("core-0.19.2"))]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_weights_survive_import_and_export(patched: Path) -> None:
    """Column, row, QKV and replicated weights, also from stages that hold no vision tower."""
    found = convert(patched)
    assert found == {name: [[], [], [], []] for name in found}
    assert len(found) == 4


def test_with_the_text_models_groups_they_do_not(patched: Path) -> None:
    found = convert(patched, "--without-groups")
    same = "TP 4 x PP 1, vision TP 4"
    assert found.pop(same) == [[], [], [], []]
    assert all(wrong != [[], [], [], []] for wrong in found.values())
