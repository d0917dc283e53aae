"""Qwen3-Omni thinker: packed pixel rows and grids, images and videos, deepstack levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from skillgen.evals.kernel import families as base
from skillgen.evals.kernel.families import (
    IMAGE_ID,
    VIDEO_ID,
    VOCAB,
    Batch,
    Family,
    Item,
    Layout,
    PointwiseLM,
    pixels,
    sequence,
)
from skillgen.evals.kernel.harness import Harness

PATCH, TEMPORAL, MERGE = 4, 2, 2
FEATURES = 3 * TEMPORAL * PATCH * PATCH


class Qwen3Omni(Family):
    name = "qwen3_omni"
    packages = (
        ".models.qwen_omni",
        ".models.qwen_omni.modeling_qwen3_omni",
        ".models.qwen_vl",
        ".models.qwen_vl.modelling_qwen3_vl",
    )
    module = "models.qwen_omni.modeling_qwen3_omni.thinker_model"
    video = True
    levels = 2
    labels_sliced_by_model = False

    def prepare(self, harness: Harness) -> None:
        name = "models.qwen_omni.modeling_qwen3_omni.transformer_config"
        self.config_class = harness.load(name).Qwen3OmniTransformerConfig

    def build(self, layout: Layout, flag: bool, *, large: bool = False) -> nn.Module:
        from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeThinkerConfig

        width, depth = (128, 4) if large else (32, 3)
        vision = {
            "depth": depth,
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_heads": 2,
            "patch_size": PATCH,
            "temporal_patch_size": TEMPORAL,
            "spatial_merge_size": MERGE,
            "out_hidden_size": self.hidden,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0, 1],
        }
        audio = {
            "d_model": 16,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "num_mel_bins": 8,
            "output_dim": self.hidden,
            "downsample_hidden_size": 8,
        }
        thinker = Qwen3OmniMoeThinkerConfig(vision_config=vision, audio_config=audio)
        thinker.vision_config._attn_implementation = "sdpa"
        config = self.config_class(
            num_layers=1,
            hidden_size=self.hidden,
            num_attention_heads=4,
            context_parallel_size=layout.cp_size,
            vocab_size=VOCAB,
            spatial_merge_size=MERGE,
            image_token_id=IMAGE_ID,
            video_token_id=VIDEO_ID,
            audio_token_id=base.AUDIO_ID,
            vision_start_token_id=base.VISION_START,
            vision_end_token_id=base.VISION_END,
            audio_start_token_id=base.AUDIO_START,
            audio_end_token_id=base.AUDIO_END,
        )
        config.vision_dp_over_cp = flag
        self.code.Qwen3VLGPTModel = lambda **_: PointwiseLM(
            self.hidden, levels=self.levels, collection=layout.language_collection
        )
        return self.code.Qwen3OmniThinkerModel(
            language_transformer_config=config,
            language_transformer_layer_spec=None,
            thinker_transformer_config=thinker,
            pg_collection=layout.collection,
        )

    def batch(self, items: Sequence[Item], seed: int) -> Batch:
        blocks = [(VIDEO_ID if i.frames else IMAGE_ID, max(i.frames, 1) * i.rows * i.cols) for i in items]
        ids, labels, loss_mask = sequence(blocks, seed)
        inputs: dict[str, Any] = {"input_ids": ids}
        names: list[str] = []
        images, videos = [i for i in items if not i.frames], [i for i in items if i.frames]
        for group, name, grid_name in (
            (images, "pixel_values", "image_grid_thw"),
            (videos, "pixel_values_videos", "video_grid_thw"),
        ):
            if group:
                grid = torch.tensor([[max(i.frames, 1), i.rows * MERGE, i.cols * MERGE] for i in group])
                inputs[name] = pixels((int(grid.prod(1).sum()), FEATURES), seed + len(names))
                inputs[grid_name] = grid
                names.append(name)
        if videos:
            inputs["video_second_per_grid"] = torch.ones(len(videos))
        return Batch(inputs, tuple(names), labels, loss_mask, sum(n for _, n in blocks), len(names))

    def tower(self, model: nn.Module) -> nn.Module:
        return model.visual  # type: ignore[return-value]

    def projector(self, model: nn.Module) -> nn.Module:
        return model.visual.merger  # type: ignore[union-attr, return-value]

    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        return int(kwargs["grid_thw"].prod(1).sum())


FAMILY = Qwen3Omni
