"""What the classification reads from structure, on miniature sources: what makes a verdict, and what must not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from skillgen.engine.scan import scan
from skillgen.kernel.model import Outcome
from skillgen.kernel.source import Source
from skillgen.kernel.target import discover
from skillgen.techniques.vision_dp_over_cp import sites as vision_sites
from skillgen.techniques.vision_frame_sharding import sites as frame_sites
from tests.vision_frame_sharding.frames import IN_FORWARD, MODEL, PATH, PLAIN, SHARD, TOY, WIRED, only, write

bridge_rows = partial(scan, technique=vision_sites.TECHNIQUE)
automodel_rows = partial(scan, technique=frame_sites.TECHNIQUE)

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
        pytest.param(
            {PATH: "from ..toys import ForConditionalGeneration as Text\nclass Toy(Text): pixel_values = 0\n"},
            id="base-of-the-package",
        ),
    ],
)
def test_no_row(tmp_path: Path, files: dict[str, str]) -> None:
    assert automodel_rows(write(tmp_path, files)) == []


def test_syntax_error_is_a_refused_row(tmp_path: Path) -> None:
    row = only(write(tmp_path, {PATH: "class Toy:\n    pixel_values = (\n"}))
    assert (row.outcome, row.reason, row.evidence) == (Outcome.REFUSED, "syntax-error", (f"{MODEL}:2",))


def test_other_products_have_no_rows(tmp_path: Path) -> None:
    target = write(tmp_path, {PATH: PLAIN})
    assert bridge_rows(target) == []
    (tmp_path / "megatron").mkdir()
    (tmp_path / "nemo_automodel").rename(tmp_path / "megatron" / "bridge")
    assert automodel_rows(discover(tmp_path, "megatron-bridge")) == []


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
    site, row = frame_sites.find_site(Source(target), "toy")
    assert (row.outcome, site.layout, site.in_forward) == (Outcome.APPLIED, TOY.layouts[1], False)
