"""MiniMax M3, the negative control: its tower lets every item of a call attend to every other."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from skillgen.evals.kernel.families import (
    IMAGE_ID,
    VIDEO_ID,
    Batch,
    Family,
    Item,
    Layout,
    PointwiseLM,
    pixels,
    sequence,
)
from skillgen.evals.kernel.harness import Harness
from skillgen.runtime.grid_rows import GridRows  # the target has none of its own where another form was patched in

PATCH, TEMPORAL, MERGE = 4, 2, 2
FEATURES = 3 * TEMPORAL * PATCH * PATCH


class MiniMaxM3(Family):
    name = "minimax_m3"
    packages = (".models.minimax_m3",)
    module = "models.minimax_m3.modeling_minimax_m3_vl"

    def __init__(self, harness: Harness, variant: str = "") -> None:
        super().__init__(harness, variant)
        self.runtime = harness.runtime

    def build(self, layout: Layout, flag: bool, *, large: bool = False) -> nn.Module:
        """With `flag`, `_project_vision` is forced through the runtime, one unit per grid row."""
        vision = types.SimpleNamespace(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            patch_size=PATCH,
            temporal_patch_size=TEMPORAL,
            num_channels=3,
        )
        config = types.SimpleNamespace(
            vision_config=vision,
            spatial_merge_size=MERGE,
            projector_hidden_size=64,
            hidden_size=self.hidden,
            multimodal_projector_bias=True,
            lightning_indexer_layers=(),
            share_embeddings_and_output_weights=False,
            sequence_parallel=False,
            context_parallel_size=layout.cp_size,
            image_token_id=IMAGE_ID,
            video_token_id=VIDEO_ID,
            _pg_collection=layout.collection,
            provide_language_model=lambda **_: PointwiseLM(self.hidden, collection=layout.language_collection),
        )
        model = self.code.MiniMaxM3VLModel(config)
        if flag:
            runtime = self.runtime()
            model._project_vision = runtime.api.ShardedEncoder(
                encode=model._project_vision,
                form=GridRows(merge_size=MERGE, grid="grid_thw"),
                group=layout.cp,
                cp_size=layout.cp_size,
                modules=[model.vision_tower, model.multi_modal_projector, model.patch_merge_mlp],
                alpha=runtime.plan.cost_alpha(32, 64),
                language_model=None,
                name="MiniMax M3 vision_dp_over_cp",
            )
        return model

    def batch(self, items: Sequence[Item], seed: int) -> Batch:
        rows = [item.rows * item.cols for item in items]
        ids, labels, loss_mask = sequence([(IMAGE_ID, n) for n in rows], seed)
        grid = torch.tensor([[1, item.rows * MERGE, item.cols * MERGE] for item in items])
        inputs: dict[str, Any] = {
            "input_ids": ids,
            "image_grid_thw": grid,
            "pixel_values": pixels((int(grid.prod(1).sum()), FEATURES), seed),
        }
        return Batch(inputs, ("pixel_values",), labels, loss_mask, sum(rows), 1)

    def tower(self, model: nn.Module) -> nn.Module:
        return model.vision_tower  # type: ignore[return-value]

    def projector(self, model: nn.Module) -> nn.Module:
        return nn.ModuleList([model.multi_modal_projector, model.patch_merge_mlp])  # type: ignore[list-item]

    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        return int(args[1].prod(1).sum())


FAMILY = MiniMaxM3
