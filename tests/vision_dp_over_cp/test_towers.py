"""Towers whose items attend to one another, and sharding that is there already, on miniature sources."""

from __future__ import annotations

from functools import partial

import pytest

from skillgen.engine.scan import scan
from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_dp_over_cp import sites as vision_sites

bridge_rows = partial(scan, technique=vision_sites.TECHNIQUE)

M3 = next(adapter for adapter in adapters(vision_sites.FAMILIES) if adapter.family == "minimax_m3")
MODEL, PROVIDER = M3.models[0], M3.providers[0]
IMPORTS = "import torch.nn.functional as F\nfrom x.common_utils import slice_batch_for_context_parallel\n"
VL = """
class MiniMaxM3VLModel:
    def _project_vision(self, pixel_values, grid):
        return self.projector(self.vision_tower(pixel_values, grid))

    def get_image_features(self, pixel_values, grid):
        return self._project_vision(pixel_values, grid)

    def get_video_features(self, pixel_values, grid):
        return self._project_vision(pixel_values, grid)

    def forward(self, ids, pixels, grid, videos, video_grid):
        rows = self.merge(ids, self.get_image_features(pixels, grid), self.get_video_features(videos, video_grid))
        return self.language_model(slice_batch_for_context_parallel(rows))
"""
LAYERS = """
class Layer:
    def __init__(self, config):
        self.attention = MiniMaxM3VisionAttention(config)

    def forward(self, x, rotary{layer}):
        return self.attention(x, rotary{to_attention})


class Tower:
    def __init__(self, config):
        self.layers = ModuleList([Layer(config) for _ in range(2)])

    def forward(self, pixels, grid):
        for layer in self.layers:
            pixels = layer(pixels, grid{to_layer})
        return pixels
"""


def tower(signature: str, attend: str, *, layer: str = "", to_attention: str = "", to_layer: str = "") -> str:
    attention = f"""
class MiniMaxM3VisionAttention:
    def forward(self, x, rotary{signature}):
        q, k, v = self.qkv(x, rotary)
        return {attend}
"""
    return IMPORTS + attention + LAYERS.format(layer=layer, to_attention=to_attention, to_layer=to_layer) + VL


SDPA = "F.scaled_dot_product_attention(q, k, v{})"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(tower("", SDPA.format("")), id="no-mask"),
        pytest.param(tower("", SDPA.format(", attn_mask=None")), id="mask-is-none"),
        pytest.param(tower("", SDPA.format(", None, 0.0")), id="positional-mask-is-none"),
        pytest.param(tower(", mask=None", SDPA.format(", attn_mask=mask")), id="mask-never-passed"),
        pytest.param(
            tower(", mask=None", SDPA.format(", attn_mask=mask"), to_attention=", mask=None"), id="none-passed"
        ),
        pytest.param(
            tower(", mask=None", SDPA.format(", attn_mask=mask"), layer=", mask=None", to_attention=", mask"),
            id="mask-stops-at-the-layer",
        ),
        pytest.param(tower(", cu_seqlens=None", SDPA.format("")), id="lengths-never-passed"),
        pytest.param(tower("", "self.kernel(q, k, v)"), id="unknown-kernel"),
    ],
)
def test_coupled(verdict, source: str) -> None:
    row = verdict({MODEL.path: source, PROVIDER.path: f"class {PROVIDER.cls}:\n    pass\n"})
    assert (row.outcome, row.reason) == (Outcome.REFUSED, "items-attend-to-one-another")
    line = 1 + source.partition("F.scaled")[0].count("\n") if "F.scaled" in source else 4
    assert row.evidence[0] == f"megatron/bridge/{MODEL.path}:{line}"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(tower("", SDPA.format(", attn_mask=self.block_mask(rotary)")), id="mask-made-inside"),
        pytest.param(
            tower(
                ", mask=None",
                SDPA.format(", attn_mask=mask"),
                layer=", mask=None",
                to_attention=", mask",
                to_layer=", self.block_mask(grid)",
            ),
            id="mask-passed-down",
        ),
        pytest.param(
            tower(
                ", cu_seqlens=None",
                "varlen(q, k, v, cu_seqlens)",
                layer=", cu_seqlens=None",
                to_attention=", cu_seqlens=cu_seqlens",
                to_layer=", cu_seqlens=self.lengths(grid)",
            ),
            id="lengths-passed-down",
        ),
    ],
)
def test_kept_apart(verdict, source: str) -> None:
    row = verdict({MODEL.path: source, PROVIDER.path: f"class {PROVIDER.cls}:\n    pass\n"})
    assert row.outcome is Outcome.APPLICABLE
    assert "unit:row" in row.notes


def test_attention_class_gone_is_drift(verdict) -> None:
    source = tower("", SDPA.format("")).replace("MiniMaxM3VisionAttention", "MiniMaxM3Attention")
    row = verdict({MODEL.path: source, PROVIDER.path: f"class {PROVIDER.cls}:\n    pass\n"})
    assert row.outcome is Outcome.DRIFT
    assert f"megatron/bridge/{MODEL.path}:4" in row.evidence


QWEN = "models/qwen_vl/modelling_qwen3_vl/"
FORWARD = """
from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.utils import Gather, pick_cp_split, split_data_cp_rank
AllGatherVision = Gather


class Qwen3VLModel:
    def forward(self, data, grid, size, rank, cp_img_num=None):
{body}
        rows = self.gather(AllGatherVision, rows)
        return self.language_model(split_data_cp_rank(rows, size, 0, rank))
"""
TOWER = "        rows = self.vision_model(data, grid)"
GUARDED = """\
        if data.shape[0] > 0:
            rows = self.vision_model(data, grid)
        else:
            rows = {blank}"""
UTILS = """
import torch


def split_data_cp_rank(value, size, dim, rank):
    return value


def pick_cp_split(size, items):
    return _pick(size, items)


def _pick(size, items):
    total = len(items)
    return [total // size] * size


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, lengths, group):
        return rows

    @staticmethod
    def backward(ctx, grad):
        {backward}
"""
SUMMED = (
    "grad = grad.clone()\n        torch.distributed.all_reduce(grad, group=ctx.group)\n        return grad, None, None"
)


@pytest.mark.parametrize(
    ("body", "backward", "defects"),
    [
        pytest.param(TOWER, SUMMED, [], id="sound"),
        pytest.param(GUARDED.format(blank="torch.zeros((0, 8))"), SUMMED, ["idle-rank-skips-tower"], id="skips"),
        pytest.param(
            GUARDED.format(blank="self.vision_model(self.dummy, None)[:0]"), SUMMED, [], id="dummy-on-idle-rank"
        ),
        pytest.param(
            GUARDED.format(blank="torch.zeros((0, 8), dtype=torch.bfloat16)"),
            SUMMED,
            ["idle-rank-skips-tower", "placeholder-type-fixed"],
            id="fixed-type",
        ),
        pytest.param(
            TOWER + "\n        rows = Gather.apply(rows, 1)", SUMMED, ["gather-call-incomplete"], id="argument-missing"
        ),
        pytest.param(TOWER + "\n        rows = Gather.apply(rows, 1, self.cp)", SUMMED, [], id="gather-complete"),
        pytest.param(
            TOWER + "\n        rows = Gather.apply(rows, 1, 2)",
            "return grad[:1], None, None",
            ["backward-drops-gradients"],
            id="slices",
        ),
        pytest.param(
            TOWER + "\n        rows = Gather.apply(rows, 1, 2)",
            SUMMED.partition("        ")[2],
            ["backward-reduces-in-place"],
            id="in-place",
        ),
        pytest.param(
            TOWER + "\n        split_data_cp_rank(rows, size, 1, rank, None)",
            SUMMED,
            ["split-call-overfull"],
            id="overfull",
        ),
        pytest.param("        data = pick_cp_split(size, data)\n" + TOWER, SUMMED, ["split-by-count"], id="by-count"),
        pytest.param(
            "        if cp_img_num is None:\n            data = pick_cp_split(size, data)\n" + TOWER,
            SUMMED,
            ["split-by-count", "given-split-not-expanded"],
            id="given-split",
        ),
        pytest.param(
            "        if cp_img_num is None:\n            data = pick_cp_split(size, data)\n"
            "        else:\n            data = self.expand(data)\n" + TOWER,
            SUMMED,
            ["split-by-count"],
            id="given-split-expanded",
        ),
    ],
)
def test_defects_of_existing_sharding(tree, body: str, backward: str, defects: list[str]) -> None:
    target = tree(
        {
            QWEN + "model.py": FORWARD.format(body=body),
            QWEN + "utils.py": UTILS.format(backward=backward),
            "models/qwen_vl/qwen3_vl_provider.py": "class Qwen3VLModelProvider:\n    vision_dp_when_cp = False\n",
        }
    )
    (row,) = bridge_rows(target)
    assert (row.outcome, row.reason) == (Outcome.UPGRADE, "sharded-already")
    assert [note.split()[0].removeprefix("defect:") for note in row.notes if note.startswith("defect:")] == defects
