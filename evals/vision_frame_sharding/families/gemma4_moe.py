"""Gemma 4: patches padded to one length per image, [images, patches, features], and their positions; images only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from skillgen.evals.kernel.families import Item, pixels
from skillgen.evals.vision_frame_sharding.towers import (
    HIDDEN,
    IMAGE_ID,
    PAD_ID,
    Tower,
    TowerBatch,
    Unit,
    Words,
    bare,
    config,
)

PATCH, POOL = 4, 2
LONGEST = 96  # patches of an image, padding included


class Gemma4(Tower):
    name = "gemma4_moe"
    part = torch.float32  # its norms and its pooling compute in fp32
    video = False

    def build(self, *, large: bool = False) -> nn.Module:
        from transformers.models.gemma4 import modeling_gemma4 as hf
        from transformers.models.gemma4.configuration_gemma4 import Gemma4VisionConfig

        width, depth = (128, 4) if large else (32, 2)
        vision = Gemma4VisionConfig(
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=depth,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=width // 2,
            patch_size=PATCH,
            pooling_kernel_size=POOL,
            position_embedding_size=64,
        )
        vision._attn_implementation = "sdpa"
        text = config(hidden_size=HIDDEN, pad_token_id=PAD_ID)
        whole = config(image_token_id=IMAGE_ID, vision_config=vision, text_config=text, return_dict=True)
        inner = bare(
            self.code.Gemma4MoEModel,
            vision_tower=hf.Gemma4VisionModel._from_config(vision),
            embed_vision=hf.Gemma4MultimodalEmbedder(vision, text),
            language_model=Words(),
            config=whole,
        )
        return bare(self.code.Gemma4ForConditionalGeneration, model=inner, config=whole, cp_mesh=None)

    def batch(self, items: Sequence[Item], seed: int) -> TowerBatch:
        if not items:
            empty = {"pixel_values": None, "image_position_ids": None}
            return TowerBatch({"input_ids": torch.full((1, 1), PAD_ID), **empty}, ())
        positions = torch.full((len(items), LONGEST, 2), -1)
        rows = [item.rows * item.cols for item in items]
        for place, item in zip(positions, items, strict=True):
            height, width = item.rows * POOL, item.cols * POOL
            at = torch.stack(torch.meshgrid(torch.arange(width), torch.arange(height), indexing="xy"), dim=-1)
            place[: height * width] = at.reshape(-1, 2)
        inputs = {
            "input_ids": torch.full((1, sum(rows)), IMAGE_ID),
            "pixel_values": pixels((len(items), LONGEST, 3 * PATCH**2), seed).sigmoid(),
            "image_position_ids": positions,
        }
        return TowerBatch(inputs, ("pixel_values",), [[Unit(LONGEST, count) for count in rows]])

    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        return [model._cp_sunk_prepare_inputs(mm_token_type_ids=None, **inputs)["inputs_embeds"][0]]

    def tower(self, model: Any) -> nn.Module:
        return model.model.vision_tower

    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        values = args[0] if args else kwargs["pixel_values"]
        return int(values.shape[0] * values.shape[1])


FAMILY = Gemma4
