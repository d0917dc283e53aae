"""The verdict on Qwen3-VL: on miniatures of its files, and on every release in SKILLGEN_RELEASES."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from skillgen.engine import scan as engine
from skillgen.kernel.model import Row
from skillgen.kernel.target import discover
from skillgen.techniques.vision_tp_dp import sites as tp_dp_sites
from tests.vision_tp_dp.targets import BRIDGE, original, row

Scan = Callable[..., Row]
CLASS = f"class {tp_dp_sites.MODEL_CLASS}:\n"
INIT = """\
    def __init__(self, config, pg_collection=None):
        self.vision_model = Qwen3VLVisionModel(config, pg_collection=pg_collection)
"""
FORWARD = """\

    def forward(self, pixels, grid):
        return self.vision_model(hidden_states=pixels, grid_thw=grid)
"""
PROVIDER = "class Qwen3VLModelProvider:\n    vision_dp_when_cp: bool = False\n"
REGISTRY = "class MegatronMappingRegistry:\n    def _prepare_mapping(self, mapping):\n        return mapping\n"
PROVIDERS = next(iter(tp_dp_sites.PROVIDERS))
FILES = {tp_dp_sites.MODEL: CLASS + INIT + FORWARD, PROVIDERS: PROVIDER, tp_dp_sites.REGISTRY: REGISTRY}
OURS = "from megatron.bridge.models.common.vision_parallel import make_vision_groups\n"


@pytest.fixture
def scan(tmp_path: Path) -> Scan:
    """The row of a miniature: FILES, with some of them changed or, as None, taken away."""

    def classify(changed: Mapping[str, str | None] | None = None) -> Row:
        for path, text in {"__init__.py": "", **FILES, **(changed or {})}.items():
            if text is not None:
                file = tmp_path / BRIDGE / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        return row(tmp_path)

    return classify


def told(found: Row) -> str:
    return f"{found.outcome.value} {found.reason}"


def test_a_tower_with_the_text_models_group_is_applicable(scan: Scan) -> None:
    found = scan()
    assert told(found) == "applicable tied-to-the-text-model"
    assert found.plannable and found.notes == ("no-test-tree",)
    model = f"{BRIDGE}/{tp_dp_sites.MODEL}"
    assert found.evidence == (f"{model}:6", f"{model}:3")


MODEL = tp_dp_sites.MODEL
HUGGING_FACE = INIT.replace("Qwen3VLVisionModel(config, pg_collection=pg_collection)", "Tower._from_config(config)")
MADE = "        self.vision_groups, _ = make_vision_groups(config, pg_collection)\n"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param({MODEL: OURS + CLASS + INIT + MADE + FORWARD}, "applied patched-by-skillgen", id="ours"),
        pytest.param(
            {PROVIDERS: PROVIDER + "    vision_tp_size: int = 1\n"}, "upstream upstream-has-it", id="its own degrees"
        ),
        pytest.param(
            {PROVIDERS: "class DistTrainConfig:\n    vision_tensor_model_parallel_size: int = 1\n\n\n" + PROVIDER},
            "applicable tied-to-the-text-model",
            id="degrees of the vision ranks of dist_train",
        ),
        pytest.param(
            {MODEL: CLASS + HUGGING_FACE + FORWARD},
            "refused tower-without-tensor-parallelism",
            id="Hugging Face tower",
        ),
        pytest.param(
            {tp_dp_sites.REGISTRY: "class MegatronMappingRegistry:\n    pass\n"},
            "refused conversion-with-global-groups",
            id="groups are lost when a mapping is resolved",
        ),
        pytest.param({MODEL: CLASS + INIT + "def broken(:\n"}, "refused syntax-error", id="broken file"),
        pytest.param({MODEL: CLASS + INIT}, "drift anchor-moved", id="no forward"),
        pytest.param({MODEL: CLASS + FORWARD}, "drift anchor-moved", id="no __init__"),
        pytest.param(
            {MODEL: CLASS + INIT + FORWARD.replace("vision_model", "tower")}, "drift anchor-moved", id="other tower"
        ),
        pytest.param(
            {MODEL: CLASS + INIT.replace("pg_collection=pg_collection", "groups=pg_collection") + FORWARD},
            "drift anchor-moved",
            id="groups by another name",
        ),
        pytest.param({PROVIDERS: "class Other:\n    pass\n"}, "drift anchor-moved", id="no provider"),
        pytest.param({MODEL: None, "models/moved.py": CLASS + INIT}, "drift anchor-moved", id="class moved"),
    ],
)
def test_verdict(changed: Mapping[str, str | None], expected: str, scan: Scan) -> None:
    found = scan(changed)
    assert told(found) == expected
    assert found.plannable is (found.outcome.value == "applicable")
    assert all(place.startswith(BRIDGE) and ":" in place for place in found.evidence)


def test_drift_tells_what_was_sought_and_what_is_like_it(scan: Scan) -> None:
    found = scan({MODEL: None, "models/moved.py": CLASS + INIT})
    assert found.notes == (
        f"sought: class {tp_dp_sites.MODEL_CLASS} in {MODEL}",
        f"verified: {tp_dp_sites.VERIFIED}",
    )
    assert found.evidence == (f"{BRIDGE}/models/moved.py:1",)


def test_a_target_without_the_model_has_no_row(tmp_path: Path) -> None:
    package = tmp_path / BRIDGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    assert engine.scan(discover(tmp_path), technique=tp_dp_sites.TECHNIQUE) == []


@pytest.mark.parametrize(
    ("name", "expected", "places"),
    [
        ("bridge-0.3.1", "refused tower-without-tensor-parallelism", [MODEL]),
        ("bridge-0.4.2", "refused conversion-with-global-groups", [tp_dp_sites.REGISTRY, tp_dp_sites.MAPPING, MODEL]),
        ("bridge-0.5.1", "refused conversion-with-global-groups", [tp_dp_sites.REGISTRY, tp_dp_sites.MAPPING, MODEL]),
        ("bridge-0.6.2", "applicable tied-to-the-text-model", [MODEL]),
    ],
)
def test_releases(name: str, expected: str, places: list[str]) -> None:
    root = original(name)
    found = row(root)
    assert told(found) == expected
    evidence = [place.rsplit(":", 1) for place in found.evidence]
    assert list(dict.fromkeys(path for path, _ in evidence)) == [f"{BRIDGE}/{path}" for path in places]
    words = ("self.vision_model(", "pg_collection", "resolve(", "_tp_group", "_from_config(")
    for path, line in evidence:
        assert any(word in (root / path).read_text().splitlines()[int(line) - 1] for word in words)
