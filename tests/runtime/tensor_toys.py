"""Small vision encoders for images that are entries of one tensor, and batches for them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from skillgen.runtime.padded_patches import PaddedPatches
from skillgen.runtime.tensor_batch import TensorBatch
from tests.runtime.toys import HIDDEN, MERGE, Toy, grid_batch, image_batch, patchify

SIDE, POOL = 4, 3  # patches beside each other in an equal image; in a pooled cell


class TensorToy(Toy):
    """Equal images [N, C, H, W], or groups of `tubelet` frames with the last frame repeated in a short one."""

    def encode(self, pixel_values: Tensor) -> Any:
        missing = -len(pixel_values) % self.tubelet
        frames = torch.cat([pixel_values, *[pixel_values[-1:]] * missing])
        groups = torch.stack([patchify(frame) for frame in frames]).unflatten(0, (-1, self.tubelet))
        kind = "image" if self.tubelet == 1 else "video"
        merge = lambda x: x.view(-1, MERGE**2, HIDDEN).mean(1)  # noqa: E731
        return self.finish([self.rows(group.transpose(0, 1).flatten(1), merge, kind) for group in groups])

    def form(self, **options: Any) -> TensorBatch:
        """How this one takes images of `tensor_batch`."""
        return TensorBatch(tokens=SIDE**2 // MERGE**2, group=self.tubelet, patches=SIDE**2, **options)


class PaddedToy(Toy):
    """Patches [N, P, features] with positions, (-1, -1) where padded; the mean of each POOL x POOL cell is a row."""

    form = PaddedPatches(pooling=POOL)

    def encode(self, pixel_values: Tensor, image_position_ids: Tensor) -> Any:
        return self.finish([self.image(*image) for image in zip(pixel_values, image_position_ids, strict=True)])

    def image(self, patches: Tensor, positions: Tensor) -> Tensor:
        real = (positions != -1).all(-1)
        assert not patches[~real].any()
        width, height = (int(side) + 1 for side in positions.amax(0))
        x, y = (positions[real] // POOL).T
        cells = F.one_hot(x + width // POOL * y, width * height // POOL**2).to(patches.dtype)
        return self.rows(patches[real], lambda x: cells.T @ x / POOL**2)


def tensor_batch(count: int) -> dict[str, Any]:
    """Images of SIDE x SIDE patches."""
    return {"pixel_values": image_batch(*[(SIDE, SIDE)] * count)["pixel_values"]}


def padded_batch(*grids: tuple[int, int], length: int = 0) -> dict[str, Any]:
    """Images of (h, w) patches, as patches padded to `length` or to the longest."""
    length = length or max(h * w for h, w in grids)
    patches = grid_batch((1, 1, sum(h * w for h, w in grids)))["pixel_values"].split([h * w for h, w in grids])
    places = [torch.cartesian_prod(torch.arange(h), torch.arange(w)).flip(1) for h, w in grids]
    return {
        "pixel_values": torch.stack([F.pad(x, (0, 0, 0, length - len(x))) for x in patches]),
        "image_position_ids": torch.stack([F.pad(x, (0, 0, 0, length - len(x)), value=-1) for x in places]),
    }
