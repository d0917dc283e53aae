"""MiniMax M3: packed pixel rows with grids as lists; the frames of an entry see each other."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from skillgen.evals.vision_frame_sharding.towers import HIDDEN, IMAGE_ID, VIDEO_ID, GridTower, Words, bare, config


class MiniMaxM3(GridTower):
    name = "minimax_m3_vl"
    entries = True

    def build(self, *, large: bool = False) -> nn.Module:
        from nemo_automodel.components.models.minimax_m3_vl.config import MiniMaxM3VLVisionConfig

        width, depth = (128, 4) if large else (32, 2)
        vision = MiniMaxM3VLVisionConfig(
            hidden_size=width,
            num_attention_heads=2,
            num_hidden_layers=depth,
            intermediate_size=2 * width,
            patch_size=self.patch,
            img_token_compression_config={
                "spatial_merge_size": self.merge,
                "temporal_patch_size": self.temporal,
            },
            vision_segment_max_frames=16,
        )
        return bare(
            self.code.MiniMaxM3SparseForConditionalGeneration,
            model=Words(),
            vision_tower=self.code.MiniMaxM3VisionModel(vision, HIDDEN, 48),
            image_token_index=IMAGE_ID,
            video_token_index=VIDEO_ID,
            config=config(vision_config=vision),
            cp_mesh=None,
        )

    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        return [model._embed_and_splice(**inputs)[0]]

    def tower(self, model: Any) -> nn.Module:
        return model.vision_tower


FAMILY = MiniMaxM3
