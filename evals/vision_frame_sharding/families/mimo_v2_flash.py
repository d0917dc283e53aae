"""MiMo V2 Flash: packed pixel rows with grids; windows in rows and in columns, attention sinks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from skillgen.evals.vision_frame_sharding.towers import HIDDEN, IMAGE_ID, VIDEO_ID, GridTower, bare, config


class MiMoV2Flash(GridTower):
    name = "mimo_v2_flash"

    def build(self, *, large: bool = False) -> nn.Module:
        width, depth = (128, 4) if large else (32, 4)
        vision = config(
            hidden_size=width,
            intermediate_size=2 * width,
            depth=depth,
            num_heads=2,
            num_key_value_heads=1,
            qk_channels=width // 2,
            hidden_act="silu",
            out_hidden_size=HIDDEN,
            patch_size=self.patch,
            temporal_patch_size=self.temporal,
            spatial_merge_size=self.merge,
            fullatt_block_indexes=[0],
            vit_window_attn_types=[-1, 0, 1, 0],
            use_sink=True,
            visual_token_window_size=2,
        )
        return bare(
            self.code.MiMoV2FlashForCausalLM,
            config=config(image_token_id=IMAGE_ID, video_token_id=VIDEO_ID, vision_config=vision),
            visual=self.code.MiMoVisionTransformer(vision, dtype=torch.float32),
            cp_mesh=None,
        )

    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        media, ids = dict(inputs), inputs["input_ids"]
        embeds = torch.zeros(*media.pop("input_ids").shape, HIDDEN, dtype=model.visual.dtype, device=ids.device)
        return [model._get_multimodal_embeds(ids, embeds, **media)[0]]

    def tower(self, model: Any) -> nn.Module:
        return model.visual


FAMILY = MiMoV2Flash
