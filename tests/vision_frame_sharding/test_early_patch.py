"""Frame sharding on NeMo Automodel 0.5.0: apply, apply again, status and revert, of each family and of all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skillgen.kernel.checks import find_ruff
from skillgen.kernel.errors import CONFLICT, REFUSED, USAGE
from tests.ledger.trees import snapshot
from tests.vision_frame_sharding.patching import PACKAGE, call, checkout, done, is_drift, released

FAMILIES = ("nemotron_omni", "qwen3_5_moe", "step3p7")
OPTION = "--distributed.multimodal.vision.frame_sharding.enabled true"
SHARED = {
    "components/distributed/config.py": "multimodal: MultimodalConfig",
    "components/utils/model_utils.py": '"video_grid_thw"',
    "recipes/_dist_utils.py": "_multimodal_config(strategy_kwargs",
    "recipes/vlm/finetune.py": "vision_frame_sharding.setup(",
    "recipes/vlm/kd.py": "vision_frame_sharding.publish(",
    "components/distributed/vision_frame_sharding.py": "def shard(",
}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released("0.5.0", tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def tree(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "tree"))


def source(tree: Path, path: str) -> str:
    return (tree / PACKAGE / path).read_text()


def wired(tree: Path) -> set[bool]:
    """Whether the edits that families share are there."""
    return {(tree / PACKAGE / path).is_file() and text in source(tree, path) for path, text in SHARED.items()}


def of_family(tree: Path) -> set[str]:
    files = {family: source(tree, f"components/models/{family}/model.py") for family in FAMILIES}
    return {family for family, text in files.items() if "vision_frame_sharding.is_active()" in text}


@pytest.mark.parametrize(
    ("families", "trainable"),
    [*(((family,), ()) for family in FAMILIES), (FAMILIES, ()), (FAMILIES, ("--trainable",))],
    ids=[*FAMILIES, "all", "all, trainable"],
)
def test_apply_twice_and_revert(tree: Path, families: tuple[str, ...], trainable: tuple[str, ...]) -> None:
    before = snapshot(tree)
    rows = done("apply", tree, *trainable, families=families)
    assert sum(row["edited_code_lines"] for row in rows) <= (120 if not trainable else 160)
    assert of_family(tree) == set(families) and wired(tree) == {True}
    after = snapshot(tree)
    assert [row["changed_lines"] for row in done("apply", tree, *trainable, families=families)] == [0] * len(families)
    assert snapshot(tree) == after
    assert {(row["family"], row["state"]) for row in done("status", tree)} == {(f, "applied") for f in families}
    done("revert", tree)
    assert snapshot(tree) == before


@pytest.mark.parametrize("order", [FAMILIES, FAMILIES[::-1]], ids="-".join)
def test_families_leave_one_by_one(tree: Path, order: tuple[str, ...]) -> None:
    before = snapshot(tree)
    done("apply", tree)
    for number, family in enumerate(order, 1):
        done("revert", tree, families=[family])
        left = set(order[number:])
        assert of_family(tree) == left
        assert wired(tree) == {bool(left)}
        assert {(row["family"], row["state"]) for row in done("status", tree)} == {(f, "applied") for f in left}
        for path in (tree / PACKAGE).glob("recipes/**/*.py"):
            compile(path.read_bytes(), path, "exec")
    assert snapshot(tree) == before


def test_families_that_join_one_by_one_are_as_if_applied_together(tree: Path, tmp_path: Path) -> None:
    together = Path(shutil.copytree(tree, tmp_path / "together"))
    done("apply", together)
    for family in reversed(FAMILIES):
        done("apply", tree, families=[family])
    own = {path: text for path, text in snapshot(tree).items() if not path.startswith(".skillgen")}
    assert own == {path: text for path, text in snapshot(together).items() if not path.startswith(".skillgen")}


def trains(tree: Path) -> set[bool]:
    paths = ("components/distributed/cp_utils.py", "recipes/vlm/kd.py")
    return {"shard_embeddings" in source(tree, path) for path in paths}


def test_the_choice_to_train_is_one_for_the_target_and_stays(tree: Path) -> None:
    before = snapshot(tree)
    done("apply", tree, families=["qwen3_5_moe"])
    assert trains(tree) == {False}
    rows = done("apply", tree, "--trainable", families=["step3p7"])
    assert {row["family"] for row in rows} == {"qwen3_5_moe", "step3p7"}, "the other family's patch is renewed"
    assert trains(tree) == {True}
    done("apply", tree)
    assert trains(tree) == {True} and of_family(tree) == set(FAMILIES)
    done("revert", tree, families=["step3p7"])
    assert trains(tree) == {True}
    done("apply", tree, "--no-trainable")
    assert trains(tree) == {False}
    done("revert", tree)
    assert snapshot(tree) == before


def test_later_releases_embed_in_forward_and_have_no_such_choice(tmp_path: Path) -> None:
    tree = released("0.7.0", tmp_path)
    code, answer = call("plan", tree, "--trainable", families=["step3p7"])
    assert (code, answer["error"]["code"]) == (REFUSED, "no-such-option")
    code, answer = call("plan", tree, "--splitter", "mcore")
    assert (code, answer["error"]["code"]) == (USAGE, "no-such-option")


MOVED = [
    ("components/utils/model_utils.py", "VLM_INPUT_KEYS: tuple", "VLM_KEYS: tuple", "tuple VLM_INPUT_KEYS"),
    ("recipes/vlm/kd.py", "_pre_embed_only=True", "_embed_only=True", "_pre_embed_only=True"),
    ("recipes/vlm/finetune.py", '"get_rope_index", None', '"rope_index", None', "get_rope_index"),
    ("recipes/_dist_utils.py", "strategy_kwargs: Dict[str, Any] = cfg", "strategy_kwargs = cfg", "strategy_kwargs"),
    ("components/models/qwen3_5_moe/model.py", "self.model.get_video_features(", "self.model.videos(", "get_video_f"),
    ("components/models/step3p7/model.py", "def _process_image_input", "def _image_input", "_process_image_input"),
]


@pytest.mark.parametrize(("path", "old", "new", "sought"), MOVED, ids=[path for path, *_ in MOVED])
def test_a_moved_anchor_is_drift(tree: Path, path: str, old: str, new: str, sought: str) -> None:
    is_drift(tree, path, old, new, sought, family="qwen3_5_moe")


def test_an_edit_inside_ours_is_a_conflict_and_one_beside_it_stays(tree: Path) -> None:
    done("apply", tree)
    file = tree / PACKAGE / "recipes/vlm/kd.py"
    patched = file.read_text()
    file.write_text(patched + "\n\nOWN = 1\n")
    done("revert", tree, families=["step3p7"])
    assert file.read_text().endswith("OWN = 1\n")
    file.write_text(patched.replace("vision_frame_sharding.publish(self.device_mesh", "publish(self.device_mesh"))
    code, answer = call("revert", tree)
    assert (code, answer["error"]["code"]) == (CONFLICT, "conflict")


def test_a_checkout_is_clean_under_the_targets_own_rules(tmp_path: Path) -> None:
    tree = checkout("v0.5.0", tmp_path)
    before = snapshot(tree)
    ruff = find_ruff()
    assert ruff
    for trainable in ((), ("--trainable",)):
        rows = done("apply", tree, *trainable)
        assert all("ruff-not-run" not in row["notes"] and "no-test-tree" not in row["notes"] for row in rows)
        new = [path for path in snapshot(tree) if path not in before]
        tests = [path for path in new if path.startswith("tests/") and path.endswith(".py")]
        (example,) = (path for path in new if path.startswith("examples/"))
        assert len(tests) == 4
        assert OPTION in (tree / "docs/guides/vlm/step-3-7.md").read_text()
        for command in (
            [ruff, "check", "--no-cache", "--quiet", PACKAGE],
            [ruff, "format", "--check", "--no-cache", PACKAGE, *tests],
            [sys.executable, "tools/lint_example_yamls.py", example],
        ):
            answer = subprocess.run(
                command, cwd=tree, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": "."}
            )
            assert answer.returncode == 0, answer.stdout + answer.stderr
    done("revert", tree)
    assert snapshot(tree) == before
