"""Ministral 3: images in a padded batch, HF tower and projector."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from skillgen.evals.kernel.families import IMAGE_ID, VOCAB, Batch, Family, Item, Layout, PointwiseLM, pixels, sequence
from skillgen.evals.kernel.harness import BRIDGE, Harness
from skillgen.evals.kernel.inert import inert_module

PATCH, MERGE = 8, 2
CELL = PATCH * MERGE


class Ministral3(Family):
    name = "ministral3"
    packages = (".models.ministral3",)
    module = "models.ministral3.modeling_ministral3"

    def prepare(self, harness: Harness) -> None:
        provider = f"{BRIDGE}.models.gpt_provider"
        if provider not in sys.modules:
            sys.modules[provider] = inert_module(provider)
            harness.stands_in(f"inert module: {provider} (an annotation only)")

    def build(self, layout: Layout, flag: bool, *, large: bool = False) -> nn.Module:
        from transformers import Mistral3Config

        width, depth = (128, 4) if large else (32, 2)
        vision = {
            "model_type": "pixtral",
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_hidden_layers": depth,
            "num_attention_heads": 2,
            "head_dim": width // 2,
            "image_size": 64 * PATCH,
            "patch_size": PATCH,
        }
        text = {"model_type": "mistral", "hidden_size": self.hidden, "num_hidden_layers": 1, "vocab_size": VOCAB}
        hf = Mistral3Config(
            vision_config=vision, text_config=text, spatial_merge_size=MERGE, image_token_index=IMAGE_ID
        )
        config = types.SimpleNamespace(
            hf_config=hf,
            hidden_size=self.hidden,
            image_token_id=IMAGE_ID,
            context_parallel_size=layout.cp_size,
            sequence_parallel=False,
            share_embeddings_and_output_weights=False,
            vision_dp_over_cp=flag,
            _pg_collection=layout.collection,
            provide_language_model=lambda **_: PointwiseLM(self.hidden, collection=layout.language_collection),
        )
        return self.code.Ministral3Model(config)

    def batch(self, items: Sequence[Item], seed: int) -> Batch:
        rows = [item.rows * item.cols for item in items]
        ids, labels, loss_mask = sequence([(IMAGE_ID, n) for n in rows], seed)
        inputs: dict[str, Any] = {"input_ids": ids}
        if items:
            sizes = [(item.rows * CELL, item.cols * CELL) for item in items]
            height, width = (max(side) for side in zip(*sizes, strict=True))
            inputs["pixel_values"] = pixels((len(items), 3, height, width), seed)
            inputs["image_sizes"] = torch.tensor(sizes)
        return Batch(inputs, ("pixel_values",) if items else (), labels, loss_mask, sum(rows), int(bool(items)))

    def tower(self, model: nn.Module) -> nn.Module:
        return model.vision_tower  # type: ignore[return-value]

    def projector(self, model: nn.Module) -> nn.Module:
        return model.multi_modal_projector  # type: ignore[return-value]

    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        return sum(int(h) // PATCH * (int(w) // PATCH) for h, w in kwargs["image_sizes"])


FAMILY = Ministral3
