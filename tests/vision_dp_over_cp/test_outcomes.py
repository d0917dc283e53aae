"""Every outcome of the classification on miniature sources: what makes it, and what must not."""

from __future__ import annotations

from functools import partial

import pytest

from skillgen.engine.scan import scan
from skillgen.kernel.errors import AnchorDrift, SkillgenError
from skillgen.kernel.model import Outcome
from skillgen.kernel.source import Source
from skillgen.techniques.vision_dp_over_cp import sites as vision_sites

bridge_rows = partial(scan, technique=vision_sites.TECHNIQUE)

MODEL = "models/ministral3/modeling_ministral3.py"
PROVIDER = "models/ministral3/ministral3_provider.py"
PLAIN = "class Ministral3ModelProvider:\n    pass\n"
SLICED = """\
from megatron.bridge.utils.common_utils import slice_batch_for_context_parallel


class Ministral3Model:
    def forward(self, ids, pixel_values, image_sizes):
        rows = self.get_image_features(pixel_values, image_sizes=image_sizes)
        return self.language_model(slice_batch_for_context_parallel(self.merge(ids, rows)))
"""
PATCHED = "from megatron.bridge.models.common.vision_sharding.api import ShardedEncoder\n" + SLICED.replace(
    "self.get_image_features(", "self._sharded(self.get_image_features)("
)


def ministral(model: str = SLICED, provider: str = PLAIN) -> dict[str, str]:
    return {MODEL: model, PROVIDER: provider}


@pytest.mark.parametrize(
    ("model", "provider", "outcome", "reason"),
    [
        pytest.param(SLICED, PLAIN, Outcome.APPLICABLE, "replicated-encoder", id="replicated"),
        pytest.param(PATCHED, PLAIN, Outcome.APPLIED, "patched-by-skillgen", id="import-of-our-runtime"),
        pytest.param(
            PATCHED.replace(".vision_sharding.api import ShardedEncoder", " import vision_sharding"),
            PLAIN,
            Outcome.APPLIED,
            "patched-by-skillgen",
            id="import-of-an-older-patch",
        ),
        pytest.param(
            PATCHED.replace("megatron.bridge.models.common.vision_sharding", "..common.vision_sharding"),
            PLAIN,
            Outcome.APPLIED,
            "patched-by-skillgen",
            id="relative-import-of-our-runtime",
        ),
        pytest.param(
            "from megatron.bridge.models.common.vision_sharding import cost_alpha, tp_dp\n" + SLICED,
            PLAIN,
            Outcome.REFUSED,
            "tower-has-own-degrees",
            id="import-of-our-runtime-by-another-technique",
        ),
        pytest.param(
            SLICED.replace("_utils import", "_utils import vision_sharding_notes,"),
            PLAIN,
            Outcome.APPLICABLE,
            "replicated-encoder",
            id="import-of-a-like-name",
        ),
        pytest.param(
            SLICED,
            "class Ministral3ModelProvider:\n    vision_dp_over_cp: bool = False\n",
            Outcome.UPSTREAM,
            "upstream-has-it",
            id="upstream-provider-field",
        ),
        pytest.param(
            "class Renamed:\n    def __init__(self, vision_dp_over_cp=False): ...\n",
            PLAIN,
            Outcome.UPSTREAM,
            "upstream-has-it",
            id="upstream-parameter-beats-drift",
        ),
        pytest.param(
            SLICED + '\n    """vision_dp_over_cp is not here."""  # vision_dp_over_cp\n',
            PLAIN,
            Outcome.APPLICABLE,
            "replicated-encoder",
            id="flag-in-prose-only",
        ),
        pytest.param(
            SLICED,
            PLAIN + "class Other:\n    vision_dp_over_cp: bool = True\n",
            Outcome.APPLICABLE,
            "replicated-encoder",
            id="flag-of-another-provider",
        ),
    ],
)
def test_applied_and_upstream(verdict, model: str, provider: str, outcome: Outcome, reason: str) -> None:
    row = verdict(ministral(model, provider))
    assert (row.outcome, row.reason) == (outcome, reason)


def test_a_receipt_tells_our_patch_from_upstream(tree) -> None:
    target = tree(ministral(provider="class Ministral3ModelProvider:\n    vision_dp_over_cp: bool = False\n"))
    receipt = target.state_dir / "receipts" / "vision-dp-over-cp--ministral3.json"
    receipt.parent.mkdir(parents=True)
    receipt.write_text("{}")
    (row,) = bridge_rows(target)
    assert row.outcome is Outcome.APPLIED


def test_forward_inherited_from_a_wrapper_of_megatron_core(verdict, tree) -> None:
    files = {
        "models/nemotron_omni/modeling_nemotron_omni.py": (
            "from ..wrap.model import Wrapper\n\n\nclass NemotronOmniModel(Wrapper):\n    pass\n"
        ),
        "models/wrap/model.py": (
            "from megatron.core.models.multimodal.llava_model import LLaVAModel\n\n\nclass Wrapper:\n"
            "    def __init__(self, llava: LLaVAModel):\n        self.llava = llava\n\n"
            "    def forward(self, *args, **kwargs):\n        return self.llava(*args, **kwargs)\n"
        ),
    }
    row = verdict(files)
    assert (row.outcome, row.reason) == (Outcome.REFUSED, "call-site-in-megatron-core")
    assert row.evidence[0] == "megatron/bridge/models/wrap/model.py:9"
    own = {**files, "models/wrap/model.py": files["models/wrap/model.py"].replace("megatron.core.models", "elsewhere")}
    assert verdict(own).outcome is Outcome.DRIFT


def test_subclass_of_megatron_core(verdict) -> None:
    row = verdict(
        {
            "models/nemotron_vl/modeling_nemotron_vl.py": (
                "from megatron.core.models.multimodal import llava_model\n\n\n"
                "class NemotronVLModel(llava_model.LLaVAModel):\n    pass\n"
            )
        }
    )
    assert row.reason == "call-site-in-megatron-core"


@pytest.mark.parametrize("path", [MODEL, PROVIDER, "models/new_vl/modeling_new.py"])
@pytest.mark.parametrize(
    "text", ["def broken(:\n    self.vision_tower(x)\n", b"self.vision_tower(\0)\n"], ids=["syntax", "null"]
)
def test_broken_file_is_a_row(verdict, tree, path: str, text: str | bytes) -> None:
    rows = bridge_rows(tree({**ministral(), path: text}))
    broken = [row for row in rows if row.reason == "syntax-error"]
    assert [row.outcome for row in broken] == [Outcome.REFUSED]
    assert broken[0].family == ("new_vl" if "new" in path else "ministral3")
    assert broken[0].evidence == (f"megatron/bridge/{path}:1",)


def test_other_families_survive_a_broken_file(tree) -> None:
    glm = "class GLM45VModel:\n    def forward(self, x): self.get_image_features(x), self.get_video_features(x)\n"
    rows = bridge_rows(
        tree(
            {
                **ministral("def broken(:"),
                "models/glm_vl/modeling_glm_45v.py": glm,
                "models/glm_vl/glm_45v_provider.py": "class GLM45VModelProvider:\n    pass\n",
            }
        )
    )
    assert [(row.family, row.reason) for row in rows] == [
        ("glm_vl", "no-context-parallel"),
        ("ministral3", "syntax-error"),
    ]


NEW = "models/new_vl/modeling_new_vl.py"


@pytest.mark.parametrize(
    "call",
    [
        "self.visual(pixel_values)",
        "self.vision_tower(pixel_values=x)",
        "self.model.vision_model(batch['x'], grid_thw=grid)",
        "self.get_video_features(x, video_grid)",
        "self._encode_images(images)",
    ],
)
def test_candidate(verdict, call: str) -> None:
    row = verdict({NEW: f"class NewVLModel:\n    def forward(self, x):\n        return {call}\n"})
    assert (row.family, row.outcome, row.reason) == ("new_vl", Outcome.CANDIDATE, "unknown-encoder-call")
    assert row.evidence == (f"megatron/bridge/{NEW}:3",)
    assert not row.plannable


@pytest.mark.parametrize(
    ("path", "call"),
    [
        pytest.param(NEW, "self.vision_tower(hidden, rotary)", id="no-pixels"),
        pytest.param(NEW, "self.audio_tower(pixel_values)", id="not-a-vision-name"),
        pytest.param(NEW, "processor.vision_model(pixel_values)", id="not-an-attribute-of-the-model"),
        pytest.param("data/new_vl/collate.py", "self.vision_tower(pixel_values)", id="not-a-model-file"),
        pytest.param("models/new_vl/.hidden/model.py", "self.vision_tower(pixel_values)", id="hidden-folder"),
    ],
)
def test_not_a_candidate(tree, path: str, call: str) -> None:
    files = {path: f"class NewVLModel:\n    def forward(self, x):\n        return {call}\n"}
    assert bridge_rows(tree(files)) == []


def test_new_family_beside_a_known_one_is_a_candidate(tree) -> None:
    new = "class NextModel:\n    def forward(self, pixel_values):\n        return self.visual(pixel_values)\n"
    rows = bridge_rows(tree({**ministral(), "models/ministral3/modeling_next.py": new}))
    assert [(row.family, row.outcome.value) for row in rows] == [
        ("ministral3", "applicable"),
        ("ministral3", "candidate"),
    ]


def test_symlinked_file_is_not_read(tree, tmp_path) -> None:
    target = tree({})
    outside = tmp_path.parent / f"{tmp_path.name}-outside.py"
    outside.write_text("class NewVLModel:\n    def forward(self, pixel_values):\n        self.visual(pixel_values)\n")
    (target.package / "models").mkdir()
    (target.package / "models" / "link.py").symlink_to(outside)
    assert bridge_rows(target) == []


def test_notes_name_what_a_patch_lives_with(verdict) -> None:
    model = SLICED.replace("        rows", "        if self.use_dist_train:\n            return None\n        rows", 1)
    row = verdict(ministral(model, "class Ministral3ModelProvider:\n    vision_cuda_graph_impl: str = 'none'\n"))
    assert row.notes == (
        "unit:image",
        "form:image-batch",
        f"dist-train megatron/bridge/{MODEL}:6",
        f"vision-cuda-graph megatron/bridge/{PROVIDER}:2",
        "no-test-tree",
    )


def test_find_site(tree, tmp_path) -> None:
    target = tree(ministral())
    (tmp_path / "tests").mkdir()
    site, row = vision_sites.find_site(Source(target), "ministral3")
    assert (site.model_path, site.provider_path) == (f"megatron/bridge/{MODEL}", f"megatron/bridge/{PROVIDER}")
    assert (site.cls, site.providers, site.other_providers) == ("Ministral3Model", ("Ministral3ModelProvider",), ())
    assert site.tests_root == "tests"
    assert row.evidence == (f"megatron/bridge/{MODEL}:6", f"megatron/bridge/{MODEL}:7")
    assert "no-test-tree" not in row.notes


@pytest.mark.parametrize(
    ("family", "code"), [("ministral3", "anchor-moved"), ("glm_vl", "family-absent"), ("nobody", "unknown-family")]
)
def test_find_site_refuses(tree, family: str, code: str) -> None:
    with pytest.raises(SkillgenError) as caught:
        vision_sites.find_site(Source(tree(ministral(SLICED.replace("get_image_features", "encode_images")))), family)
    assert caught.value.code == code
    if isinstance(caught.value, AnchorDrift):
        assert caught.value.sought == "call self.get_image_features in Ministral3Model.forward"
        assert caught.value.nearest[0] == f"megatron/bridge/{MODEL}:6"
