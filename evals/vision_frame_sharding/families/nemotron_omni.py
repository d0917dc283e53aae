"""Nemotron Omni: tiles, and videos in groups of frames; a stand-in for the tower, whose code is remote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from skillgen.evals.kernel.families import Item, pixels
from skillgen.evals.vision_frame_sharding.towers import HIDDEN, IMAGE_ID, Tower, TowerBatch, Unit, Words, bare, config

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
        hidden = (self.video_embedder if x.shape[1] > 3 else self.embedder)(cut.flatten(3).flatten(1, 2))
        for mix, mlp in zip(self.mixes, self.mlps, strict=True):
            hidden = hidden + nn.functional.scaled_dot_product_attention(*mix(hidden).chunk(3, dim=-1))
            hidden = hidden + mlp(hidden)
        return config(features=hidden)


class Spliced(Words):
    """Stand-in for the language model: what it gets are the features, spliced into zeros."""

    def forward(self, inputs_embeds: Tensor, **_: Any) -> Tensor:
        return inputs_embeds


class NemotronOmni(Tower):
    """An image is a row of tiles, `rows * cols` of them; a video of n temporal patches has 2n - 1 frames."""

    name = "nemotron_omni"
    part = torch.bfloat16  # to which features are cast before they are projected

    def __init__(self, harness: Any, variant: str = "") -> None:
        super().__init__(harness, variant)
        harness.stands_in("nemotron_omni: RADIO, which is remote code, by patch embeddings with attention layers")

    def build(self, *, large: bool = False) -> nn.Module:
        width, depth = (128, 4) if large else (32, 2)
        return bare(
            self.code.NemotronOmniForConditionalGeneration,
            config=config(vit_hidden_size=width, force_image_size=TILE),
            language_model=Spliced().bfloat16(),
            img_context_token_id=IMAGE_ID,
            sound_encoder=None,
            sound_context_token_id=None,
            cp_mesh=None,
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
        """The model takes images or one video at a time."""
        tiles = inputs["tiles"]
        media = [{"pixel_values": tiles, "image_flags": torch.ones(len(tiles), 1)}] if tiles is not None else []
        media += [{"pixel_values_videos": inputs[name]} for name in inputs["videos"]]
        found = []
        for call in media:
            values = next(iter(call.values()))
            units = -(-len(values) // (1 if "pixel_values" in call else TOGETHER))
            ids = torch.full((1, units * GRID // 4), IMAGE_ID, device=values.device)
            if hasattr(model, "prepare_inputs_embeds_for_cp"):  # 0.5.0
                found.append(model.prepare_model_inputs_for_cp(ids, **call)["inputs_embeds"][0])
            else:
                found.append(model.forward(input_ids=ids, **call)[0])
        return [torch.cat(found)] if found else []

    def tower(self, model: Any) -> nn.Module:
        return model.vision_model

    def cast(self, model: Any, dtype: torch.dtype) -> None:
        model.vision_model.to(dtype)

    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        return int(args[0].shape[0]) * GRID


FAMILY = NemotronOmni
