"""Images as entries of one tensor: equal ones, or patches padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .forms import PLACEHOLDER_ROWS, Call, Units
from .plan import Run, Segment


@dataclass(frozen=True, kw_only=True)
class TensorBatch:
    """Equal images, tiles or frames [N, ...], of `patches` patches each, encoded as [units, tokens, width].

    A unit is `group` entries in a row; the encoder fills up a last short one by repeating the last entry.
    """

    tokens: int
    pixels: str = "pixel_values"
    group: int = 1
    patches: int = 1

    def units(self, call: Call) -> Units:
        """One run of all groups."""
        count = -(-len(call[self.pixels]) // self.group)
        patches = self.patches * self.group
        runs = (Run(patches, count),) if count else ()
        return Units(runs, (self.tokens,) * len(runs), ("image",) * len(runs), (patches, self.tokens))

    def take(self, call: Call, share: Sequence[Segment], fill: Sequence[str]) -> Call:
        """Cut out a share, with its last group filled up, then append a group of zeros for each of `fill`."""
        pixels = call[self.pixels]
        pieces = [pixels[start * self.group : (start + count) * self.group] for _, start, count in share]
        missing = -sum(map(len, pieces)) % self.group
        pieces.append(pixels[-1:].expand(missing, *pixels.shape[1:]))
        pieces.append(pixels.new_zeros(len(fill) * self.group, *pixels.shape[1:]))
        return {**call, self.pixels: torch.cat(pieces)}


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
        return Units((Run(length),) * len(rows), rows, ("image",) * len(rows), (length, self._blank_rows(length)))

    def take(self, call: Call, share: Sequence[Segment], fill: Sequence[str]) -> Call:
        """Cut out a share, then append a small image of zeros for each of `fill`."""
        pixels, positions = call[self.pixels], call[self.positions]
        own = [segment.run for segment in share]
        rows = self._blank_rows(pixels.shape[1])
        blank = positions.new_full((1, *positions.shape[1:]), -1)
        places = torch.arange(rows * self.pooling**2, device=positions.device)
        width = rows * self.pooling
        blank[0, : len(places)] = torch.stack([places % width, places // width], dim=-1)
        return {
            **call,
            self.pixels: torch.cat([pixels[own], pixels.new_zeros(len(fill), *pixels.shape[1:])]),
            self.positions: torch.cat([positions[own], blank.expand(len(fill), -1, -1)]),
        }

    def _blank_rows(self, length: int) -> int:
        return min(PLACEHOLDER_ROWS, length // self.pooling**2)
