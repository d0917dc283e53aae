"""Models and batches that a recipe of Automodel 0.5.0 can be driven with: whole where a CPU can run them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from skillgen.evals.kernel.families import (
    IMAGE_ID,
    VIDEO_ID,
    VISION_END,
    VISION_START,
    VOCAB,
    Item,
    sequence,
    settle_weights,
)
from skillgen.evals.vision_frame_sharding.towers import HIDDEN, GridTower, Tower, Words, bare

IMAGES = [Item(2, 3), Item(4, 2), Item(3, 3), Item(2, 3), Item(1, 4)]  # unequal, and equal ones among them


class RecipeModel(ABC):
    """A family's model, by its own class, with the token embedding and the tower that `_pre_embed_only` needs."""

    batches: ClassVar[Mapping[str, Sequence[Item]]]
    whole: ClassVar[bool] = False  # with its language model

    def __init__(self, family: Tower) -> None:
        self.family = family

    @abstractmethod
    def build(self) -> Any:
        """The model on CPU, weights not set."""

    @abstractmethod
    def blocks(self, inputs: dict[str, Any]) -> list[tuple[int, int]]:
        """Placeholder tokens (id, count) that the family's tower inputs stand for, in the order of the sequence."""

    def media(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The family's tower inputs as a data loader names them."""
        return {name: value for name, value in inputs.items() if value is not None and name != "input_ids"}

    def tower_of(self, model: Any) -> Any:
        """What `family.tower` takes."""
        return model

    def model(self, seed: int) -> Any:
        """A model with seeded weights, the same in all arms and on all ranks."""
        model = self.build().double()
        settle_weights(model, seed)
        return model

    def batch(self, items: Sequence[Item], seed: int) -> dict[str, Tensor]:
        """What a data loader gives the recipe: text, media between it, and labels."""
        inputs = self.family.batch(items, seed).inputs
        ids, labels, mask = sequence(self.blocks(inputs), seed)
        media = {
            name: value.double() if value.is_floating_point() else value for name, value in self.media(inputs).items()
        }
        return {"input_ids": ids, "labels": labels.masked_fill(mask == 0, -100), **media}


class Qwen35Moe(RecipeModel):
    """The whole model, its layers and experts by torch."""

    batches: ClassVar = {
        "images": IMAGES,
        "images and a 4-frame video": [*IMAGES, Item(2, 2, 4)],
        "a 5-frame video": [Item(2, 3, 5)],
        "one image": IMAGES[:1],
    }
    whole = True

    def build(self) -> Any:
        from transformers import Qwen3_5MoeConfig

        tower = self.family
        assert isinstance(tower, GridTower)
        vision = {
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": tower.patch,
            "temporal_patch_size": tower.temporal,
            "spatial_merge_size": tower.merge,
            "out_hidden_size": HIDDEN,
            "num_position_embeddings": 64,
        }
        text = {
            "vocab_size": VOCAB,
            "hidden_size": HIDDEN,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["full_attention"] * 2,
        }
        tokens = {"image_token_id": IMAGE_ID, "video_token_id": VIDEO_ID}
        ends = {"vision_start_token_id": VISION_START, "vision_end_token_id": VISION_END}
        by_torch = dict.fromkeys(("linear", "rms_norm", "dispatcher", "experts"), "torch")
        backend = self.family.code.BackendConfig(attn="sdpa", enable_hf_state_dict_adapter=False, **by_torch)
        whole = Qwen3_5MoeConfig(text_config=text, vision_config=vision, **tokens, **ends)
        return self.family.code.Qwen3_5MoeForConditionalGeneration(whole, backend=backend)

    def blocks(self, inputs: dict[str, Any]) -> list[tuple[int, int]]:
        found = []
        for name, token in (("image_grid_thw", IMAGE_ID), ("video_grid_thw", VIDEO_ID)):
            for t, h, w in inputs[name].tolist() if inputs.get(name) is not None else ():
                found += [(token, h * w // 4)] * t  # text stands between the frames of a video
        return found


class Step3p7(RecipeModel):
    """The class without its language model."""

    batches: ClassVar = {
        "images": [Item(1, 1)] * 5,
        "images and crops": [Item(1, 1, 2), Item(1, 1), Item(1, 1, 3)],
        "one image": [Item(1, 1)],
    }

    def build(self) -> Any:
        inner: Any = self.family.build()
        inner.language_model = Words(HIDDEN)
        inner.image_placeholder_token_id = inner.config.image_token_id = IMAGE_ID
        inner.config.text_config.output_hidden_states = False
        return bare(self.family.code.Step3p7ForConditionalGeneration, model=inner, config=inner.config)

    def blocks(self, inputs: dict[str, Any]) -> list[tuple[int, int]]:
        crops = inputs["num_patches"].tolist()
        units = iter(self.family.batch([Item(1, 1, max(crops))], 0).calls)  # rows of a crop, if any, and of an image
        rows = [call[0].rows for call in units]
        return [(IMAGE_ID, rows[-1] + count * rows[0]) for count in crops]

    def tower_of(self, model: Any) -> Any:
        return model.model


class NemotronOmni(RecipeModel):
    """The class without its language model, around a stand-in for its tower."""

    batches: ClassVar = {
        "tiles": [Item(1, 3), Item(1, 2)],
        "a video of 5 groups": [Item(1, 1, 5)],
        "one tile": [Item(1, 1)],
    }

    def build(self) -> Any:
        model: Any = self.family.build()
        model.language_model = Words(HIDDEN)
        model.img_context_token_id = IMAGE_ID
        model.sound_encoder = model.sound_context_token_id = None
        return model

    def model(self, seed: int) -> nn.Module:
        model = super().model(seed)
        model.vision_projector.bfloat16()
        model.language_model.bfloat16()
        return model

    def blocks(self, inputs: dict[str, Any]) -> list[tuple[int, int]]:
        media = self.media(inputs)
        calls = {"pixel_values": 1, "pixel_values_videos": 2}
        return [(IMAGE_ID, 4 * -(-len(media[name]) // group)) for name, group in calls.items() if name in media]

    def media(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if inputs["tiles"] is not None:
            return {"pixel_values": inputs["tiles"], "image_flags": torch.ones(len(inputs["tiles"]), 1)}
        return {"pixel_values_videos": inputs[inputs["videos"][0]]}


MODELS: dict[str, type[RecipeModel]] = {
    "qwen3_5_moe": Qwen35Moe,
    "step3p7": Step3p7,
    "nemotron_omni": NemotronOmni,
}
