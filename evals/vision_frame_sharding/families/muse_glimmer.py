"""Muse Glimmer: packed pixel rows with grids, window and full attention; adapter and projection after the tower."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from skillgen.evals.vision_frame_sharding.towers import HIDDEN, IMAGE_ID, VIDEO_ID, GridTower, bare


class MuseGlimmer(GridTower):
    name = "muse_glimmer"
    part = torch.float32  # its norm computes in fp32

    def build(self, *, large: bool = False) -> nn.Module:
        from nemo_automodel.components.models.muse_glimmer.config import MuseGlimmerConfig

        width, depth = (128, 4) if large else (32, 2)
        vision = {
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_hidden_layers": depth,
            "num_attention_heads": 2,
            "patch_size": self.patch,
            "patch_temporal": self.temporal,
            "merge_size": self.merge,
            "pos_emb_height": 4,
            "pos_emb_width": 4,
        }
        text = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
        whole = MuseGlimmerConfig(
            text_config=text | {"head_dim": 16, "intermediate_size": 2 * HIDDEN},
            vision_config=vision,
            out_hidden_size=width * self.merge**2,
            projector_hidden_size=48,
            patch_token_id=IMAGE_ID,
            video_token_id=VIDEO_ID,
        )
        return bare(
            self.code.MuseGlimmerModel,
            config=whole,
            has_vision=True,
            cp_mesh=None,
            vision_encoder=self.code.MuseGlimmerVisionEncoder(whole),
            vision_adapter=self.code.MuseGlimmerVisionAdapter(whole),
            vision_projection=nn.Linear(48, HIDDEN, bias=False),
            perception_emb_norm=self.code.MuseGlimmerScalelessRMSNorm(HIDDEN, 1e-5),
        )

    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        hidden = torch.zeros(*inputs["input_ids"].shape, HIDDEN, dtype=model.vision_projection.weight.dtype)
        hidden = hidden.to(inputs["input_ids"].device)
        return [model._embed_vision(hidden_states=hidden, vision_mask=None, **inputs)[0]]

    def tower(self, model: Any) -> nn.Module:
        return model.vision_encoder


FAMILY = MuseGlimmer
