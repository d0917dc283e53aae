"""Notes on a family: weaknesses of the target's own sharding, and what its recipes and the model bring about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vision_frame_sharding.frames import IN_FORWARD, MODEL, PATH, PLAIN, SHARD, WIRED, only, slugs, write

RECIPE, KD, KEYS = "recipes/vlm/finetune.py", "recipes/vlm/kd.py", "components/utils/model_utils.py"


def test_weaknesses_of_existing_sharding(tmp_path: Path, toy: None) -> None:
    row = only(write(tmp_path, {PATH: WIRED, IN_FORWARD: SHARD}))
    shard = f"nemo_automodel/{IN_FORWARD}"
    assert [note for note in row.notes if note.startswith("defect:")] == [
        f"defect:cut-in-order {shard}:7",
        f"defect:gather-padded {shard}:12",
        f"defect:host-waits-for-tower {shard}:18",
        f"defect:modalities-apart {MODEL}:13",
    ]


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        ("bisect.bisect_right(costs, rank)", "rank", "cut-in-order"),
        ("    cuts = _cut(grid, 2)\n", "    cuts = [1]\n", "cut-in-order"),
        ("longest - len(local)", "len(local)", "gather-padded"),
        ("return flag.item()", "return flag", "host-waits-for-tower"),
        ("    dist.all_reduce(flag)\n", "", "host-waits-for-tower"),
    ],
)
def test_weakness_that_is_not_there(tmp_path: Path, toy: None, old: str, new: str, gone: str) -> None:
    assert old in SHARD
    row = only(write(tmp_path, {PATH: WIRED, IN_FORWARD: SHARD.replace(old, new)}))
    assert f"defect:{gone}" not in slugs(row) and "defect:modalities-apart" in slugs(row)


def test_modalities_in_one_call(tmp_path: Path, toy: None) -> None:
    row = only(write(tmp_path, {PATH: WIRED.replace(", self._encode(videos, video_grid)", ""), IN_FORWARD: SHARD}))
    assert "defect:modalities-apart" not in slugs(row)


# --- the recipes

NO_GRAD = """\
import torch


class Recipe:
    def step(self, batch):
        with torch.no_grad():
            batch.update(self.model(_pre_embed_only=True, **batch))
"""


def test_no_gradient_before_context_parallelism(tmp_path: Path, toy: None) -> None:
    row = only(write(tmp_path, {PATH: PLAIN, RECIPE: NO_GRAD}))
    assert f"no-gradient-before-cp nemo_automodel/{RECIPE}:6" in row.notes
    for recipe in (NO_GRAD.replace("torch.no_grad()", "torch.enable_grad()"), NO_GRAD.replace("_pre_embed_only", "x")):
        assert "no-gradient-before-cp" not in slugs(only(write(tmp_path, {RECIPE: recipe})))


def test_video_grid_missing(tmp_path: Path, toy: None) -> None:
    keys = 'VLM_INPUT_KEYS: tuple[str, ...] = (\n    "input_ids",\n    "pixel_values_videos",\n)\n'
    row = only(write(tmp_path, {PATH: PLAIN, KEYS: keys}))
    assert f"video-grid-missing nemo_automodel/{KEYS}:1" in row.notes
    complete = keys.replace('    "input_ids",\n', '    "video_grid_thw",\n')
    assert "video-grid-missing" not in slugs(only(write(tmp_path, {KEYS: complete})))
    images = PLAIN.replace(", video_grid_thw=None", "")
    assert "video-grid-missing" not in slugs(only(write(tmp_path, {PATH: images, KEYS: keys})))


FINETUNE = """\
class Finetune:
    def _step(self, batch):
        with self._frame_sharding_context():
            return self.model(**batch)
"""
DISTIL = "class Distil(Finetune):\n    def _step(self, batch):\n        return self.teacher(**batch)\n"


def test_distillation_that_never_publishes(tmp_path: Path, toy: None) -> None:
    files = {PATH: PLAIN, IN_FORWARD: "", RECIPE: FINETUNE, KD: DISTIL}
    row = only(write(tmp_path, files))
    assert f"distillation-publishes-nothing nemo_automodel/{KD}:2" in row.notes
    publishes = FINETUNE.replace("Finetune", "Distil(Finetune)")
    other = DISTIL.replace("_step", "_other")
    for distillation in (publishes, other):
        assert "distillation-publishes-nothing" not in slugs(only(write(tmp_path, {KD: distillation})))


def test_nothing_publishes_before_the_target_shards_itself(tmp_path: Path, toy: None) -> None:
    row = only(write(tmp_path, {PATH: PLAIN, RECIPE: FINETUNE, KD: DISTIL}))
    assert "distillation-publishes-nothing" not in slugs(row)


# --- around the tower

LOOP = """
    def dynamic(self, pixel_values, sizes):
        return [size for size in sizes] + self.rows(pixel_values)

    def rows(self, pixel_values):
        for i, size in enumerate(pixel_values):
            self.vision_model(pixel_values[i : i + 1])
"""


def test_loop_over_the_tower(tmp_path: Path, toy: None) -> None:
    row = only(write(tmp_path, {PATH: PLAIN + LOOP}))
    assert f"loop-stays-replicated {MODEL}:10" in row.notes
    batch = LOOP.replace("for i, size in enumerate(pixel_values):", "if self.images:").replace("[i : i + 1]", "")
    assert "loop-stays-replicated" not in slugs(only(write(tmp_path, {PATH: PLAIN + batch})))


def test_ring_dispatcher_around_the_tower(tmp_path: Path, toy: None) -> None:
    ring = PLAIN.replace(
        "        return", "        self.sharder = Sharder(shard_batch=shard_batch_aux_only)\n        return"
    )
    row = only(write(tmp_path, {PATH: ring}))
    assert f"tower-under-cp-dispatcher {MODEL}:3" in row.notes
    suspended = ring.replace("self.sharder =", "cp_dispatcher_suspended(self.mesh)\n        self.sharder =")
    for model in (PLAIN, suspended):
        assert "tower-under-cp-dispatcher" not in slugs(only(write(tmp_path, {PATH: model})))
