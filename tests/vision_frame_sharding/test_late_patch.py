"""Frame sharding on NeMo Automodel from 0.6.0 on: apply, apply again, status and revert, of each family and of all."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from skillgen.kernel.checks import find_ruff
from skillgen.techniques.vision_frame_sharding.in_forward import PASSAGES
from tests.ledger.trees import snapshot
from tests.vision_frame_sharding.patching import PACKAGE, checkout, done, is_drift, released

UNWIRED = ("gemma4_moe", "glm5_next", "mimo_v2_flash", "minimax_m3_vl", "muse_glimmer")
WIRED = ("qwen3_5", "qwen3_5_moe", "qwen3_vl")  # upstream shards them already
NEW = ("glm5_next", "mimo_v2_flash", "muse_glimmer")  # since 0.7.0
CASES = [
    *(pytest.param("0.6.0", f, marks=pytest.mark.evals) for f in (*UNWIRED, *WIRED) if f not in NEW),
    *(("0.7.0", family) for family in (*UNWIRED, *WIRED)),
]
SHARED = {
    "components/distributed/cp_vision_frame_shard.py": "def published_scope(",
    "recipes/vlm/finetune.py": "vision_frame_sharding.publish(",
    "recipes/vlm/kd.py": "self._cp_vision_frame_sharding_context()",
    "components/distributed/vision_frame_sharding.py": "def shard(",
}
LINES = {"muse_glimmer": 34, "qwen3_5": 18, "qwen3_5_moe": 18}  # of a model file, added and removed; others: 16
SHARED_LINES = 30


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pristine")
    return {version: released(version, folder) for version in ("0.6.0", "0.7.0")}


@pytest.fixture
def tree(request: pytest.FixtureRequest, releases: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(releases[getattr(request, "param", "0.7.0")], tmp_path / "tree"))


def source(tree: Path, path: str) -> str:
    return (tree / PACKAGE / path).read_text()


def model(family: str) -> str:
    return f"components/models/{family}/model.py"


def wired(tree: Path) -> set[bool]:
    """Whether the edits that families share are there."""
    return {(tree / PACKAGE / path).is_file() and text in source(tree, path) for path, text in SHARED.items()}


def patched(tree: Path) -> set[str]:
    files = (tree / PACKAGE / "components/models").glob("*/model.py")
    return {file.parent.name for file in files if "vision_frame_sharding." in file.read_text()}


@pytest.mark.parametrize(("tree", "family"), CASES, indirect=["tree"])
def test_apply_twice_and_revert(tree: Path, family: str) -> None:
    before = snapshot(tree)
    planned = done("plan", tree, families=[family])
    assert snapshot(tree) == before
    (row,) = done("apply", tree, families=[family])
    assert row["edited_code_lines"] == planned[0]["edited_code_lines"]
    assert row["edited_code_lines"] <= LINES.get(family, 16) + SHARED_LINES
    assert patched(tree) == {family} and wired(tree) == {True}
    capability = "supports_cp_vision_frame_sharding"
    assert source(tree, model(family)).count(capability) == (3 if family == "gemma4_moe" else 1)
    after = snapshot(tree)
    assert [row["changed_lines"] for row in done("apply", tree, families=[family])] == [0]
    assert snapshot(tree) == after
    assert [(row["family"], row["state"]) for row in done("status", tree)] == [(family, "applied")]
    done("revert", tree)
    assert snapshot(tree) == before


@pytest.mark.parametrize("tree", ["0.6.0", pytest.param("0.7.0", marks=pytest.mark.evals)], indirect=True)
@pytest.mark.parametrize("backwards", [False, True])
def test_families_leave_one_by_one(tree: Path, backwards: bool) -> None:
    before = snapshot(tree)
    applied = [row["family"] for row in done("apply", tree)]
    assert {*UNWIRED, *WIRED} - set(applied) == (
        set() if (tree / PACKAGE / model("glm5_next")).is_file() else set(NEW)
    )
    together = {path: text for path, text in snapshot(tree).items() if not path.startswith(".skillgen")}
    order = applied[::-1] if backwards else applied
    for number, family in enumerate(order, 1):
        done("revert", tree, families=[family])
        left = set(order[number:])
        assert patched(tree) == left
        assert wired(tree) == {bool(left)}
        for path in (tree / PACKAGE).glob("recipes/vlm/*.py"):
            compile(path.read_bytes(), path, "exec")
    assert snapshot(tree) == before
    for family in order:
        done("apply", tree, families=[family])
    assert {path: text for path, text in snapshot(tree).items() if not path.startswith(".skillgen")} == together


MOVED = [
    (
        "components/distributed/cp_vision_frame_shard.py",
        'self.mesh_dims != ("cp",)',
        "not self.mesh_dims",
        "mesh_dims",
    ),
    ("components/distributed/cp_vision_frame_shard.py", "is currently supported", "is what works", "supported"),
    ("components/distributed/cp_vision_frame_shard.py", "frame_sharding_active(", "frames_shard(", "sharding_active"),
    ("recipes/vlm/finetune.py", "token = set_cp_vision_group(", "token = publish(", "set_cp_vision_group"),
    ("recipes/vlm/kd.py", "with sync_ctx, train_ctx()", "with sync_ctx, context()", "train_ctx"),
    ("recipes/vlm/kd.py", "def _teacher_forward_separate", "def _teacher", "_teacher_forward_separate"),
    (model("glm5_next"), "return self.visual(pixel", "return self.tower(pixel", "self.visual"),
    (model("muse_glimmer"), "vision_features = self.vision_adapter(", "vision_features = adapt(", "vision_adapter"),
    (model("mimo_v2_flash"), "        if has_image:", "        if pixel_values is not None:", "if:has_image"),
    (model("minimax_m3_vl"), "features = self.vision_tower(", "features = self.encode(", "self.vision_tower"),
    (
        model("gemma4_moe"),
        "image_features = self.model.get_image_features(",
        "image_features = f(",
        "get_image_features",
    ),
    (model("gemma4_moe"), "supports_ep=True", "supports_experts=True", "supports_ep"),
    (model("qwen3_5"), "image_embeds = self._encode_vision_for_cp(", "image_embeds = f(", "_encode_vision_for_cp"),
    (model("qwen3_vl"), "num_image_tokens = int(", "tokens = int(", "num_image_tokens"),
]


@pytest.mark.parametrize(("path", "old", "new", "sought"), MOVED, ids=[f"{path}: {new}" for path, _, new, _ in MOVED])
def test_a_moved_anchor_is_drift(tree: Path, path: str, old: str, new: str, sought: str) -> None:
    is_drift(tree, path, old, new, sought, family="glm5_next")


def test_what_is_off_stays_as_it_was(tree: Path) -> None:
    """Each call of a tower that was there still is, under the name that it has while nothing is published."""
    done("apply", tree)
    for family in UNWIRED:
        text = source(tree, model(family))
        gate = text.index("if vision_frame_sharding.is_active():")
        name, _, value = text[:gate].rstrip().splitlines()[-1].strip().partition(" = ")
        assert value.startswith("self.") and value.endswith(name), (family, name, value)


def test_a_checkout_is_clean_under_the_targets_own_rules(tmp_path: Path) -> None:
    tree = checkout("36044ad3d", tmp_path)
    before = snapshot(tree)
    done("apply", tree)
    ruff = find_ruff()
    assert ruff
    shown = subprocess.run(["git", "status", "--porcelain", "-uall"], cwd=tree, capture_output=True, text=True).stdout
    paths = [line[3:] for line in shown.splitlines() if line.endswith(".py")]
    assert {"tests/unit_tests/recipes/test_dist_utils.py", f"{PACKAGE}/{model('muse_glimmer')}"} <= set(paths)
    guide = (tree / "docs/guides/cp-vision-frame-sharding.mdx").read_text()
    assert [old for old in PASSAGES.values() if old in guide] == [
        PASSAGES["families"]
    ]  # a row is added below that one
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        result = subprocess.run([ruff, *command, *paths], cwd=tree, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout
    done("revert", tree)
    assert snapshot(tree) == before
