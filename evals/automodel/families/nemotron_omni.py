"""Nemotron Omni: tiles, and videos in groups of frames; a stand-in for the tower, whose code is remote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...families.base import Item, pixels
from ..towers import HIDDEN, Tower, TowerBatch, Unit, bare, config

PATCH, TILE, TOGETHER = 4, 16, 2
GRID = (TILE // PATCH) ** 2


class Radio(nn.Module):
    """Stand-in for RADIO: an embedder for images, one for groups of frames, and layers of attention and an MLP."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patch_size = PATCH
        self.embedder = nn.Linear(3 * PATCH**2, width)
        self.video_embedder = nn.Linear(3 * TOGETHER * PATCH**2, width)
        self.mixes = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth))

    @property
    def radio_model(self) -> Any:
        """Where the target finds the patch size, and changes the embedder for videos."""
        return config(model=config(patch_generator=self))

    def forward(self, x: Tensor) -> Any:
        """[count, channels, H, W] to features [count, patches, width]."""
        cut = x.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH).permute(0, 2, 3, 1, 4, 5)
        hidden = self.embedder(cut.flatten(3).flatten(1, 2))
        for mix, mlp in zip(self.mixes, self.mlps, strict=True):
            hidden = hidden + nn.functional.scaled_dot_product_attention(*mix(hidden).chunk(3, dim=-1))
            hidden = hidden + mlp(hidden)
        return config(features=hidden)


class NemotronOmni(Tower):
    """An image is a row of tiles, `rows * cols` of them; a video of n temporal patches has 2n - 1 frames."""

    name = "nemotron_omni"
    half = True

    def __init__(self, harness: Any, variant: str = "") -> None:
        super().__init__(harness, variant)
        harness.stands_in("nemotron_omni: RADIO, which is remote code, by patch embeddings with attention layers")

    def build(self, *, large: bool = False) -> nn.Module:
        width, depth = (128, 4) if large else (32, 2)
        return bare(  # type: ignore[no-any-return]
            self.code.NemotronOmniForConditionalGeneration,
            config=config(vit_hidden_size=width, force_image_size=TILE),
            vision_model=Radio(width, depth),
            vision_projector=self.code.VisionProjector(width, 48, HIDDEN).bfloat16(),
            patch_size=PATCH,
            downsample_ratio=0.5,
            ps_version="v2",
            video_temporal_patch_dim=TOGETHER,
        )

    def batch(self, items: Sequence[Item], seed: int) -> TowerBatch:
        tiles = sum(item.rows * item.cols for item in items if not item.frames)
        batch = TowerBatch({"tiles": None, "videos": ()}, ())
        if tiles:
            batch.inputs["tiles"] = pixels((tiles, 3, TILE, TILE), seed)
            batch.calls.append([Unit(GRID, GRID // 4)] * tiles)
            batch.pixels += ("tiles",)
        for number, item in enumerate(item for item in items if item.frames):
            name = f"video {number}"
            batch.inputs[name] = pixels((TOGETHER * item.frames - 1, 3, TILE, TILE), seed + 1 + number)
            batch.inputs["videos"] += (name,)
            batch.calls.append([Unit(GRID, GRID // 4)] * item.frames)
            batch.pixels += (name,)
        return batch

    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        found = [model.extract_feature(inputs["tiles"])] if inputs["tiles"] is not None else []
        found += [model.extract_video_feature(inputs[name]) for name in inputs["videos"]]
        return [torch.cat([rows.flatten(0, 1) for rows in found])] if found else []

    def tower(self, model: Any) -> nn.Module:
        return model.vision_model  # type: ignore[no-any-return]

    def cast(self, model: Any, dtype: torch.dtype) -> None:
        model.vision_model.to(dtype)

    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        return int(args[0].shape[0]) * GRID


FAMILY = NemotronOmni
