"""What the classification reads from structure, on miniature sources: what makes a verdict, and what must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillgen import frame_sites, vision_sites
from skillgen.adapters import frame_adapters
from skillgen.adapters.base import Call, FrameAdapter, Layout
from skillgen.model import Outcome, Row
from tests.scan.frames import IN_FORWARD, only, write

PATH, MODEL = "components/models/toy/model.py", "nemo_automodel/components/models/toy/model.py"
RECIPE, KD, KEYS = "recipes/vlm/finetune.py", "recipes/vlm/kd.py", "components/utils/model_utils.py"
PLAIN = """\
class ToyForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, ids, pixel_values, grid, video_grid_thw=None):
        return self.merge(ids, self.visual(pixel_values, grid))
"""
WIRED = """\
from nemo_automodel.components.distributed.cp_vision_frame_shard import distribute


class ToyForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, batch):
        return {"cp_sharder": self.sharder}

    def _encode(self, pixels, grid):
        return distribute(self.visual, pixels, grid)

    def forward(self, ids, pixels, grid, videos, video_grid):
        rows = self._encode(pixels, grid)
        return self.merge(ids, rows, self._encode(videos, video_grid))
"""
SHARD = """\
import bisect
import torch
import torch.distributed as dist


def _cut(costs, ranks):
    return [bisect.bisect_right(costs, rank) for rank in range(ranks)]


def _gather(local, counts):
    longest = max(counts)
    padding = local.new_zeros(longest - len(local), 1)
    return gather(torch.cat([local, padding]))


def _check(flag):
    dist.all_reduce(flag)
    return flag.item()


def distribute(visual, pixels, grid):
    cuts = _cut(grid, 2)
    rows = visual(pixels, grid)
    _check(rows)
    return _gather(rows, cuts)
"""
TOY = FrameAdapter(
    family="toy",
    path=PATH,
    cls="ToyForConditionalGeneration",
    layouts=(
        Layout(calls=(Call("_encode", "distribute"),), unit="frame", form="grid-rows", wired=True),
        Layout(
            calls=(Call("prepare_model_inputs_for_cp", "self.visual"),),
            unit="frame",
            form="grid-rows",
            edits=lambda site, code: [],
        ),
    ),
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family of our own among the real ones."""
    known = (*frame_adapters("automodel"), TOY)
    monkeypatch.setattr(frame_sites, "frame_adapters", lambda product: known)


def slugs(row: Row) -> list[str]:
    return [note.split()[0] for note in row.notes if " " in note]


# --- folders that no adapter knows


@pytest.mark.parametrize(
    ("model", "outcome", "reason", "line"),
    [
        pytest.param(
            "class Toy:\n    def forward(self, ids, pixel_values):\n        return self.visual(pixel_values)\n",
            Outcome.REFUSED,
            "no-context-parallel-hook",
            3,
            id="encoder-call",
        ),
        pytest.param(
            "class Toy:\n    def forward(self, ids, pixel_values): ...\n",
            Outcome.REFUSED,
            "no-context-parallel-hook",
            2,
            id="pixels-in-forward",
        ),
        pytest.param(
            "from transformers.models.toy.modeling_toy import ToyForConditionalGeneration as HF\nclass Toy(HF): ...\n",
            Outcome.REFUSED,
            "no-context-parallel-hook",
            2,
            id="inherits-a-tower",
        ),
        pytest.param(
            "class Toy:\n    @property\n    def vision_tower(self):\n        return self.base.vision_tower\n",
            Outcome.REFUSED,
            "no-context-parallel-hook",
            3,
            id="owns-a-tower",
        ),
        pytest.param(PLAIN, Outcome.CANDIDATE, "unknown-encoder-call", 3, id="hook-and-encoder"),
    ],
)
def test_unknown_folder(tmp_path: Path, model: str, outcome: Outcome, reason: str, line: int) -> None:
    row = only(write(tmp_path, {PATH: model}))
    assert (row.family, row.outcome, row.reason, row.plannable) == ("toy", outcome, reason, False)
    assert row.evidence[0] == f"{MODEL}:{line}"


@pytest.mark.parametrize(
    "capabilities",
    [
        "    class ModelCapabilities:\n        supports_cp: bool = False\n",
        "    def capabilities(self):\n        return Capabilities(supports_cp=False)\n",
    ],
)
def test_declared_without_context_parallelism(tmp_path: Path, capabilities: str) -> None:
    head, forward = "class Toy:\n", "    def forward(self, ids, pixel_values): ...\n"
    row = only(write(tmp_path, {PATH: head + capabilities + forward}))
    assert "supports_cp = False" in row.detail and row.evidence == (f"{MODEL}:4", f"{MODEL}:3")
    row = only(write(tmp_path, {PATH: head + capabilities.replace("False", "True") + forward}))
    assert "supports_cp" not in row.detail


def test_hook_of_a_base_class_counts(tmp_path: Path) -> None:
    base = "class Base:\n    def prepare_model_inputs_for_cp(self, batch): ...\n"
    model = (
        "from nemo_automodel.components.models.toy.base import Base\n"
        "class Toy(Base):\n    def forward(self, ids, pixel_values): ...\n"
    )
    row = only(write(tmp_path, {PATH: model, "components/models/toy/base.py": base}))
    assert row.outcome is Outcome.CANDIDATE


def test_images_rejected_under_context_parallelism(tmp_path: Path) -> None:
    check = 'def cut(cp_mesh, batch):\n    if batch.get("pixel_values") is not None:\n        raise ValueError\n'
    row = only(write(tmp_path, {PATH: PLAIN, "components/models/toy/cp.py": check}))
    assert (row.outcome, row.reason) == (Outcome.REFUSED, "context-parallel-rejects-images")
    assert row.evidence[0] == "nemo_automodel/components/models/toy/cp.py:2"
    elsewhere = check.replace("cp_mesh", "model")
    assert only(write(tmp_path, {"components/models/toy/cp.py": elsewhere})).outcome is Outcome.CANDIDATE


def test_vision_configuration_without_a_tower(tmp_path: Path) -> None:
    hook = "class Toy:\n    def prepare_model_inputs_for_cp(self, batch): ...\n"
    config = "class ToyConfig:\n    def __init__(self, vision_config=None): ...\n"
    row = only(write(tmp_path, {PATH: hook, "components/models/toy/config.py": config}))
    assert (row.outcome, row.reason) == (Outcome.REFUSED, "no-vision-tower")
    assert row.evidence == ("nemo_automodel/components/models/toy/config.py:2",)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({PATH: "class Toy:\n    def prepare_model_inputs_for_cp(self, batch): ...\n"}, id="text-model"),
        pytest.param({"components/models/toy/config.py": "vision_config = None\n"}, id="configuration-only"),
        pytest.param({"components/models/common/vision.py": PLAIN}, id="shared-code"),
        pytest.param({"components/models/toy/state_dict_adapter.py": PLAIN}, id="checkpoint-keys"),
        pytest.param({"components/models/toy.py": PLAIN}, id="no-folder"),
        pytest.param({PATH: "def forward(tower, pixel_values): ...\n"}, id="patched-forward"),
    ],
)
def test_no_row(tmp_path: Path, files: dict[str, str]) -> None:
    assert frame_sites.classify(write(tmp_path, files)) == []


def test_syntax_error_is_a_refused_row(tmp_path: Path) -> None:
    row = only(write(tmp_path, {PATH: "class Toy:\n    pixel_values = (\n"}))
    assert (row.outcome, row.reason, row.evidence) == (Outcome.REFUSED, "syntax-error", (f"{MODEL}:2",))


def test_other_products_have_no_rows(tmp_path: Path) -> None:
    target = write(tmp_path, {PATH: PLAIN})
    assert vision_sites.classify(target) == []
    (tmp_path / "megatron" / "bridge").mkdir(parents=True)
    (tmp_path / "megatron" / "bridge" / "__init__.py").touch()
    from skillgen.target import discover

    assert frame_sites.classify(discover(tmp_path, "megatron-bridge")) == []


# --- a family with an adapter


def test_drift_names_the_nearest_candidates(tmp_path: Path, toy: None) -> None:
    row = only(write(tmp_path, {PATH: PLAIN.replace("self.visual(", "self.vision_tower(")}))
    assert (row.outcome, row.reason, row.evidence) == (Outcome.DRIFT, "anchor-moved", (f"{MODEL}:3",))
    assert "call distribute in _encode or call self.visual in prepare_model_inputs_for_cp" in row.notes[0]


def test_layout_is_told_by_its_calls(tmp_path: Path, toy: None) -> None:
    row = only(write(tmp_path, {PATH: PLAIN}))
    assert (row.outcome, row.reason, row.plannable) == (Outcome.APPLICABLE, "replicated-encoder", True)
    assert "no-test-tree" in row.notes
    row = only(write(tmp_path, {PATH: WIRED, IN_FORWARD: SHARD}))
    assert (row.outcome, row.reason, row.plannable) == (Outcome.UPGRADE, "sharded-already", False)


def test_layout_under_our_patch_is_told_by_its_functions(tmp_path: Path, toy: None) -> None:
    line = "from nemo_automodel.components.distributed import vision_frame_sharding\n"
    target = write(tmp_path, {PATH: line + PLAIN.replace("self.visual(", "encode(")})
    site, row = frame_sites.find_site(target, "toy")
    assert (row.outcome, site.layout, site.in_forward) == (Outcome.APPLIED, TOY.layouts[1], False)


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
