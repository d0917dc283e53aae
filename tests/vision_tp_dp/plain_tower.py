"""A vision tower of Qwen3-VL's shape in plain torch: what a rank of vision TP `tp` holds, without its collectives."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from skillgen.techniques.vision_tp_dp.cost_model import Tower

Bounds = list[int]


class PlainTower(nn.Module):
    """Patches, their positions and the sizes of the images in; the last features and the deepstack levels out."""

    def __init__(self, sizes: Tower, tp: int, *, scores: bool, recompute: bool = False) -> None:
        super().__init__()
        self.sizes, self.recompute = sizes, recompute
        self.embed = nn.Linear(sizes.pixels, sizes.hidden)
        self.positions = nn.Embedding(sizes.positions, sizes.hidden)
        self.layers = nn.ModuleList(Layer(sizes, tp, scores) for _ in range(sizes.layers))
        self.levels = nn.ModuleList(Merger(sizes, tp, sizes.merged) for _ in range(sizes.deepstack))
        self.last = Merger(sizes, tp, sizes.hidden)

    def forward(self, pixels: Tensor, images: Bounds) -> list[Tensor]:
        patches = len(pixels)
        four = torch.zeros(4, patches, dtype=torch.long)
        weights = torch.full((4, patches, 1), 0.25, dtype=pixels.dtype)
        hidden = self.embed(pixels) + (self.positions(four) * weights).sum(0)
        angles = torch.rand(patches, 1, self.sizes.hidden // self.sizes.heads)
        features = []
        for number in range(self.sizes.layers):
            if self.recompute:
                hidden, *level = checkpoint(self.chunk, number, hidden, angles, images, use_reentrant=True)
            else:
                hidden, *level = self.chunk(number, hidden, angles, images)
            features += level
        return [self.last(hidden), *features]

    def chunk(self, number: int, hidden: Tensor, angles: Tensor, images: Bounds) -> tuple[Tensor, ...]:
        """A layer and its level, if it has one."""
        hidden = self.layers[number](hidden, angles, images)
        return (hidden, self.levels[number](hidden)) if number < self.sizes.deepstack else (hidden,)


class Layer(nn.Module):
    """Attention inside each image, then the MLP."""

    def __init__(self, sizes: Tower, tp: int, scores: bool) -> None:
        super().__init__()
        width, self.head, self.scores = sizes.hidden, sizes.hidden // sizes.heads, scores
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width // tp), nn.Linear(width // tp, width)
        self.fc1, self.fc2 = nn.Linear(width, sizes.intermediate // tp), nn.Linear(sizes.intermediate // tp, width)

    def forward(self, hidden: Tensor, angles: Tensor, images: Bounds) -> Tensor:
        fused = self.qkv(self.norm1(hidden)).view(len(hidden), -1, 3 * self.head)
        query, key, value = fused.split(self.head, dim=-1)
        attended = self.attend(rotate(query, angles), rotate(key, angles), value, images)
        hidden = hidden + self.proj(attended.flatten(1))
        return hidden + self.fc2(F.gelu(self.fc1(self.norm2(hidden)), approximate="tanh"))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, images: Bounds) -> Tensor:
        """One call for the images of a batch: flash, if they are one; else the plain one, which keeps its scores."""
        if not self.scores:
            assert len(images) == 1
            whole = (part.transpose(0, 1)[None] for part in (query, key, value))
            return F.scaled_dot_product_attention(*whole)[0].transpose(0, 1)
        parts = zip(*(part.transpose(0, 1).split(images, dim=1) for part in (query, key, value)), strict=True)
        return torch.cat([F.scaled_dot_product_attention(*part) for part in parts], dim=1).transpose(0, 1)


def rotate(part: Tensor, angles: Tensor) -> Tensor:
    """In fp32, with sines and cosines of its own, as the target does it."""
    first, second = part.float().chunk(2, dim=-1)
    turned = part.float() * torch.cos(angles) + torch.cat((-second, first), dim=-1) * torch.sin(angles)
    return turned.to(part.dtype)


class Merger(nn.Module):
    """Norm before or after the patches of a window become one row, then two linear layers."""

    def __init__(self, sizes: Tower, tp: int, normed: int) -> None:
        super().__init__()
        self.normed, self.merged = normed, sizes.merged
        self.norm = nn.LayerNorm(normed)
        self.fc1 = nn.Linear(sizes.merged, sizes.merged // tp)
        self.fc2 = nn.Linear(sizes.merged // tp, sizes.out_hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        rows = self.norm(hidden.view(-1, self.normed)).view(-1, self.merged)
        return self.fc2(F.gelu(self.fc1(rows), approximate="tanh"))
