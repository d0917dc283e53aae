"""Step 3.7: images and crops as [count, 3, H, W], of one size each; convolutions and a projector after the tower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from skillgen.evals.kernel.families import Item, pixels
from skillgen.evals.vision_frame_sharding.towers import HIDDEN, Tower, TowerBatch, Unit, bare, config

PATCH, IMAGE, CROP = 4, 32, 16
SHRINK = 4  # of a side by two convolutions of stride 2


class Step3p7(Tower):
    """An item is an image; its `frames` are its crops."""

    name = "step3p7"

    def build(self, *, large: bool = False) -> nn.Module:
        from nemo_automodel.components.models.step3p7.configuration_step3p7 import StepRoboticsVisionEncoderConfig

        width, depth = (128, 4) if large else (32, 2)
        vision = StepRoboticsVisionEncoderConfig(
            width=width, layers=depth, heads=2, image_size=IMAGE, mlp_ratio=2.0, patch_size=PATCH
        )
        return bare(
            self.code.Step3p7Model,
            config=config(vision_config=vision, text_config=config(hidden_size=HIDDEN)),
            vision_model=self.code.StepRoboticsVisionEncoder(vision),
            vit_large_projector=nn.Linear(4 * width, HIDDEN, bias=False),
        )

    def batch(self, items: Sequence[Item], seed: int) -> TowerBatch:
        if not items:
            return TowerBatch({"pixel_values": None}, ())
        crops = sum(item.frames for item in items)
        batch = TowerBatch({"num_patches": torch.tensor([item.frames for item in items])}, ())
        for name, count, side in (("patch_pixel_values", crops, CROP), ("pixel_values", len(items), IMAGE)):
            if count:
                batch.inputs[name] = pixels((count, 3, side, side), seed + side)
                batch.pixels += (name,)
                batch.calls.append([Unit((side // PATCH) ** 2, (side // PATCH // SHRINK) ** 2)] * count)
        return batch

    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        items = model.get_multimodal_embeddings(**inputs)
        return [] if items is None else [torch.cat(items)]

    def tower(self, model: Any) -> nn.Module:
        return model.vision_model

    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        values = args[0] if args else next(iter(kwargs.values()))
        return int(values.shape[0] * (values.shape[2] // PATCH) * (values.shape[3] // PATCH))


FAMILY = Step3p7
