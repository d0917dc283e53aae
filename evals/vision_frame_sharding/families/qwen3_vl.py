"""Qwen3-VL: packed pixel rows with grids, three deepstack levels, images and videos in one call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from skillgen.evals.vision_frame_sharding.towers import HIDDEN, IMAGE_ID, VIDEO_ID, VOCAB, GridTower, Words, bare


class Qwen3VL(GridTower):
    name = "qwen3_vl"
    levels = 3
    merged = True
    wired = True

    def build(self, *, large: bool = False) -> nn.Module:
        from transformers import Qwen3VLConfig
        from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel, Qwen3VLVisionModel

        vision = self.qwen_sizes(large) | {"depth": 4, "deepstack_visual_indexes": [0, 1, 2]}
        text = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "vocab_size": VOCAB, "num_attention_heads": 2}
        whole = Qwen3VLConfig(vision_config=vision, text_config=text, image_token_id=IMAGE_ID, video_token_id=VIDEO_ID)
        whole.vision_config._attn_implementation = "sdpa"
        visual = Qwen3VLVisionModel._from_config(whole.vision_config)
        inner = bare(Qwen3VLModel, visual=visual, language_model=Words(), config=whole)
        return bare(self.code.Qwen3VLForConditionalGeneration, model=inner, config=whole)

    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        media, ids = dict(inputs), inputs["input_ids"]
        embeds = model.model.language_model.embed_tokens(media.pop("input_ids"))
        embeds, _, levels = model._prepare_visual_inputs_for_cp(ids, embeds, **media)
        return [embeds[0], *(levels or [])]

    def upstream(self, model: Any, inputs: dict[str, Any], distribute: Any) -> list[Tensor]:
        names = ("pixel_values", "image_grid_thw"), ("pixel_values_videos", "video_grid_thw")
        pixels, grids = zip(*((inputs[a], inputs[b]) for a, b in names if inputs[a] is not None), strict=True)
        found = distribute(model.model.visual, torch.cat(pixels), torch.cat(grids))
        return [found.pooler_output, *found.deepstack_features]

    def tower(self, model: Any) -> nn.Module:
        return model.model.visual


FAMILY = Qwen3VL
