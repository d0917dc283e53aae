"""Patches padded to one length, with their positions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .forms import PLACEHOLDER_ROWS, Call, Units
from .plan import Run, Segment


@dataclass(frozen=True, kw_only=True)
class PaddedPatches:
    """Patches [N, P, features] with their positions [N, P, 2] as (x, y), (-1, -1) where they are padding.

    The encoder works on all P patches of an image, and pools `pooling` x `pooling` real ones into a row.
    """

    pooling: int
    pixels: str = "pixel_values"
    positions: str = "image_position_ids"

    def units(self, call: Call) -> Units:
        """One run per image; its rows are counted on the host, before the encoder runs."""
        if call.get(self.positions) is None:
            return Units((), (), ())
        real = (call[self.positions] != -1).all(dim=-1).sum(dim=-1).tolist()
        length = call[self.pixels].shape[1]
        rows = tuple(patches // self.pooling**2 for patches in real)
        return Units((Run(length),) * len(rows), rows, ("image",) * len(rows), self._blank_rows(length), length)

    def take(self, call: Call, share: Sequence[Segment], placeholders: Sequence[str]) -> Call:
        """Cut out a share, then append a small image of zeros for each placeholder."""
        pixels, positions = call[self.pixels], call[self.positions]
        own = [segment.run for segment in share]
        rows = self._blank_rows(pixels.shape[1])
        blank = positions.new_full((1, *positions.shape[1:]), -1)
        places = torch.arange(rows * self.pooling**2, device=positions.device)
        width = rows * self.pooling
        blank[0, : len(places)] = torch.stack([places % width, places // width], dim=-1)
        return {
            self.pixels: torch.cat([pixels[own], pixels.new_zeros(len(placeholders), *pixels.shape[1:])]),
            self.positions: torch.cat([positions[own], blank.expand(len(placeholders), -1, -1)]),
        }

    def _blank_rows(self, length: int) -> int:
        return min(PLACEHOLDER_ROWS, length // self.pooling**2)
