"""The forms in which encoders take images: what their units are, and how a rank's share is cut out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .plan import Run, Segment


Call = dict[str, Any]  # an encoder's arguments by name

PLACEHOLDER_ROWS = 2  # one row is not enough: towers that squeeze a dimension of one crash on it


class Units(NamedTuple):
    """What a batch consists of, as host integers; equal on all ranks that see the same batch."""

    runs: tuple[Run, ...]
    rows: tuple[int, ...]  # feature rows that one unit of each run yields after projection
    kinds: tuple[str, ...]  # the part of the encoder that each run exercises
    blank: tuple[int, int] = (1, PLACEHOLDER_ROWS)  # patches, at least, and rows of a placeholder

    def totals(self) -> tuple[int, int]:
        """The number of units and of their rows."""
        return sum(run.count for run in self.runs), sum(run.count * rows for run, rows in zip(self.runs, self.rows))


@dataclass(frozen=True, kw_only=True)
class GridRows:
    """Packed pixel rows [sum(t * h * w), features] and a grid [items, 3] of (t, h, w) patches, a tensor or a list.

    A temporal patch is a unit unless `split_frames` is False: then the frames of an item see each other.
    """

    merge_size: int
    pixels: str = "pixel_values"
    grid: str = "image_grid_thw"
    split_frames: bool = True

    def units(self, call: Call) -> Units:
        """One run per item."""
        grid = [(t, h, w) if self.split_frames else (1, t * h, w) for t, h, w in as_list(call[self.grid])]
        rows = tuple(h * w // self.merge_size**2 for _, h, w in grid)
        runs = tuple(Run(h * w, t) for t, h, w in grid)
        return Units(runs, rows, ("image",) * len(grid), (PLACEHOLDER_ROWS * self.merge_size**2, PLACEHOLDER_ROWS))

    def take(self, call: Call, share: Sequence[Segment], fill: Sequence[str]) -> Call:
        """Cut out a share, then append a placeholder for each kind in `fill`; a cut item becomes a shorter one."""
        pixels, items, side = call[self.pixels], as_list(call[self.grid]), self.merge_size
        starts = [0, *accumulate(t * h * w for t, h, w in items)]
        pieces, local = [], []
        for run, start, count in share:
            frames, height, width = items[run]
            first, frames = (start, count) if self.split_frames else (0, frames)
            begin = starts[run] + first * height * width
            pieces.append(pixels[begin : begin + frames * height * width])
            local.append([frames, height, width])
        local += [[1, side, PLACEHOLDER_ROWS * side]] * len(fill)
        pieces.append(pixels.new_zeros(len(fill) * PLACEHOLDER_ROWS * side**2, pixels.shape[1]))
        return {**call, self.pixels: torch.cat(pieces), self.grid: like(call[self.grid], local)}


def as_list(given: Any) -> list[Any]:
    """Host values of metadata that may be a tensor, a sequence or missing."""
    return given.tolist() if isinstance(given, Tensor) else list(given or ())


def like(given: Any, values: list[Any]) -> Any:
    """Values in the container of the metadata that they replace."""
    return given.new_tensor(values) if isinstance(given, Tensor) else values
