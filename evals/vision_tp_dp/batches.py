"""Batches of images and videos, equal on all ranks that share a microbatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from skillgen.evals.kernel.families import TEXT_IDS, Item, pixels
from skillgen.evals.vision_tp_dp.families import FEATURES, IMAGE_ID, MERGE, VIDEO_ID, VISION_END, VISION_START

MULTIPLE = 64  # of a sequence: 2 x CP x TP divides it for all degrees up to 4 x 8
SIZES = ((2, 3), (1, 1), (3, 2), (1, 4), (2, 2))  # feature rows x columns; not all equal, and equal ones


@dataclass
class Batch:
    """Arguments of the model's forward; `patches` of the images and frames, in order."""

    inputs: dict[str, Any]
    pixels: list[str]
    labels: Tensor
    mask: Tensor
    patches: list[int] = field(default_factory=list)

    def leaves(self, grad: bool = True) -> tuple[dict[str, Any], list[Tensor]]:
        """Fresh inputs, whose pixels require grad, and those pixels."""
        leaves = {name: self.inputs[name].detach().clone().requires_grad_(grad) for name in self.pixels}
        return {**self.inputs, **leaves}, [*leaves.values()]


def images(count: int) -> list[Item]:
    """`count` images of unequal sizes, with equal ones among them."""
    return [Item(*SIZES[i % len(SIZES)]) for i in range(count)]


def batch(
    items: Sequence[Item], seed: int, device: torch.device, *, sequences: int = 1, packed: bool = False
) -> Batch:
    """Items dealt to sequences in turn, padded with text to the same length; `packed` puts them into one row."""
    generator = torch.Generator().manual_seed(seed)
    rows = [_tokens(items[i::sequences], generator) for i in range(sequences)]
    dealt = [item for i in range(sequences) for item in items[i::sequences]]
    length = max(row.numel() for row in rows)
    length += -length % MULTIPLE or MULTIPLE
    ids = torch.stack([torch.cat([row, _text(length - row.numel(), generator)]) for row in rows])
    labels = torch.randint(*TEXT_IDS, ids.shape, generator=generator)
    mask = (torch.rand(ids.shape, generator=generator) < 0.9).double()
    inputs: dict[str, Any] = {}
    if packed:
        inputs["packed_seq_params"] = _bounds(sequences, length, device)
        ids, labels, mask = ids.view(1, -1), labels.view(1, -1), mask.view(1, -1)
    inputs["input_ids"] = ids.to(device)
    named: list[str] = []
    for kind, grid_name, video in (
        ("pixel_values", "image_grid_thw", False),
        ("pixel_values_videos", "video_grid_thw", True),
    ):
        chosen = [item for item in dealt if bool(item.frames) is video]
        if chosen:
            grid = torch.tensor([[max(item.frames, 1), item.rows * MERGE, item.cols * MERGE] for item in chosen])
            inputs[kind] = pixels((int(grid.prod(1).sum()), FEATURES), seed + video).double().to(device)
            inputs[grid_name] = grid.to(device)
            named.append(kind)
    sizes = [item.rows * item.cols * MERGE**2 for item in dealt for _ in range(max(item.frames, 1))]
    return Batch(inputs, named, labels.to(device), mask.to(device), sizes)


def _bounds(sequences: int, length: int, device: torch.device) -> Any:
    from megatron.core.packed_seq_params import PackedSeqParams

    bounds = torch.arange(0, (sequences + 1) * length, length, dtype=torch.int32, device=device)
    named: dict[str, Any] = dict.fromkeys(
        ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded"), bounds
    )
    return PackedSeqParams(qkv_format="thd", max_seqlen_q=length, max_seqlen_kv=length, **named)


def _tokens(items: Sequence[Item], generator: torch.Generator) -> Tensor:
    """Text around each image, and around each frame of a video."""
    parts = [_text(3, generator)]
    for item in items:
        token = VIDEO_ID if item.frames else IMAGE_ID
        for _ in range(max(item.frames, 1)):
            rows = torch.full((item.rows * item.cols,), token)
            parts += [torch.tensor([VISION_START]), rows, torch.tensor([VISION_END]), _text(2, generator)]
    return torch.cat(parts)


def _text(count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(*TEXT_IDS, (count,), generator=generator)
