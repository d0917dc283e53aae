"""Images and videos as packed pixel rows with a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from .forms import PLACEHOLDER_ROWS, Call, Units, as_list, like
from .plan import Run, Segment


@dataclass(frozen=True, kw_only=True)
class GridRows:
    """Packed pixel rows [sum(t * h * w), features] with a grid [items, 3] of (t, h, w); a temporal patch is a unit."""

    merge_size: int
    pixels: str = "pixel_values"
    grid: str = "image_grid_thw"

    def units(self, call: Call) -> Units:
        """One run per item."""
        grid = as_list(call[self.grid])
        runs = tuple(Run(h * w, t) for t, h, w in grid)
        rows = tuple(h * w // self.merge_size**2 for _, h, w in grid)
        return Units(runs, rows, ("image",) * len(grid), placeholder_patches=PLACEHOLDER_ROWS * self.merge_size**2)

    def take(self, call: Call, share: Sequence[Segment], placeholders: Sequence[str]) -> Call:
        """Cut out a share, where a cut item becomes a shorter one, and append placeholders."""
        pixels, items, side = call[self.pixels], as_list(call[self.grid]), self.merge_size
        starts = [0, *accumulate(t * h * w for t, h, w in items)]
        pieces, grid = [], []
        for run, start, count in share:
            _, height, width = items[run]
            begin = starts[run] + start * height * width
            pieces.append(pixels[begin : begin + count * height * width])
            grid.append([count, height, width])
        grid += [[1, side, PLACEHOLDER_ROWS * side]] * len(placeholders)
        pieces.append(pixels.new_zeros(len(placeholders) * PLACEHOLDER_ROWS * side**2, pixels.shape[1]))
        return {self.pixels: torch.cat(pieces), self.grid: like(call[self.grid], grid)}
