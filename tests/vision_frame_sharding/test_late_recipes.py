"""The code that a patch puts into NeMo Automodel from 0.6.0 on, run there: recipes, policy, and its own unit tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.vision_frame_sharding.patching import PACKAGE, done, released

pytestmark = pytest.mark.evals

pytest.importorskip("torch")
pytest.importorskip("transformers")

HERE = Path(__file__).resolve().parent
DISTILLATION = "recipes/test_vlm_kd_frame_sharding.py"


@pytest.fixture(scope="module", params=["0.6.0", "0.7.0"])
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A patched release that looks like a checkout, so that unit tests come with the patch."""
    tree = released(request.param, tmp_path_factory.mktemp("patched"))
    interpreter(tree)
    (tree / "tests").mkdir()
    done("apply", tree)
    return tree


def interpreter(tree: Path) -> str:
    """This Python, or that of the environment for releases which pin a newer transformers."""
    metadata = next(tree.glob("*.dist-info/METADATA")).read_text()
    (pinned,) = re.findall(r"^Requires-Dist: transformers==([\d.]+)", metadata, re.MULTILINE)
    if number(version("transformers")) >= number(pinned):
        return sys.executable
    newer = os.environ.get("SKILLGEN_EVAL_PYTHON_AUTOMODEL")
    if not newer:
        pytest.skip(f"SKILLGEN_EVAL_PYTHON_AUTOMODEL names no python with transformers {pinned}")
    return newer


def number(text: str) -> list[int]:
    return [int(part) for part in text.split(".")[:2]]


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(tree), str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run([interpreter(tree), *words], cwd=tree, env=environment, capture_output=True, text=True)


def unit_tests(tree: Path, *files: str) -> tuple[int, str]:
    """Exit code and output of unit tests of the tree."""
    names = [f"tests/unit_tests/{file}" for file in files]
    plugins = ("-p", "tests.vision_frame_sharding.inert", "-p", "no:cacheprovider")
    result = run(tree, "-m", "pytest", "-q", "--rootdir", str(tree), "-c", os.devnull, *plugins, *names)
    return result.returncode, result.stdout + result.stderr


def test_unit_tests_that_come_with_the_patch_pass(tree: Path) -> None:
    found = [path.relative_to(tree / "tests/unit_tests").as_posix() for path in tree.glob("tests/unit_tests/**/*.py")]
    assert DISTILLATION in found
    if number(version("transformers")) >= [5, 15] and "0.6.0" in tree.name:
        found = [name for name in found if "gemma4" not in name]  # 0.6.0 does not take that release's list of images
    code, output = unit_tests(tree, *found)
    assert code == 0, output


def test_a_distillation_recipe_that_does_not_publish_is_caught(tree: Path) -> None:
    file = tree / PACKAGE / "recipes/vlm/kd.py"
    patched = file.read_text()
    try:
        for step, failing in (("with sync_ctx, ", 3), ("with ", 1)):
            entered = f"{step}self._cp_vision_frame_sharding_context(), "
            assert patched.count(entered) == 1
            file.write_text(patched.replace(entered, step))
            code, output = unit_tests(tree, DISTILLATION)
            assert code == 1 and f"{failing} failed" in output, output
    finally:
        file.write_text(patched)


def test_policy_spans_tensor_parallel_ranks(tree: Path) -> None:
    result = run(tree, str(HERE / "spans.py"), str(tree))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("ok") == 4
