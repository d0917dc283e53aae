"""Images of one batch, padded to the largest, with their sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .forms import PLACEHOLDER_ROWS, Call, Units, as_list, like
from .plan import Run, Segment


@dataclass(frozen=True, kw_only=True)
class ImageBatch:
    """Images [N, C, H, W] padded at the right and bottom, and sizes [N, 2] in pixels; an image is a unit."""

    patch_size: int
    merge_size: int
    pixels: str = "pixel_values"
    sizes: str = "image_sizes"

    def units(self, call: Call) -> Units:
        """One run per image."""
        grids = [(h // self.patch_size, w // self.patch_size) for h, w in as_list(call.get(self.sizes))]
        runs = tuple(Run(h * w) for h, w in grids)
        rows = tuple((h // self.merge_size) * (w // self.merge_size) for h, w in grids)
        return Units(runs, rows, ("image",) * len(grids), placeholder_patches=PLACEHOLDER_ROWS * self.merge_size**2)

    def take(self, call: Call, share: Sequence[Segment], placeholders: Sequence[str]) -> Call:
        """Cut out a share, cropped to its largest image, and append placeholders."""
        pixels, sizes, side = call[self.pixels], as_list(call[self.sizes]), self.patch_size * self.merge_size
        images = [segment.run for segment in share]
        local = [sizes[image] for image in images] + [[side, PLACEHOLDER_ROWS * side]] * len(placeholders)
        height, width = map(max, zip(*local))
        margins = (0, width - pixels.shape[3], 0, height - pixels.shape[2])
        own = [F.pad(pixels[image : image + 1], margins) for image in images]
        blank = pixels.new_zeros(len(placeholders), pixels.shape[1], height, width)
        return {self.pixels: torch.cat([*own, blank]), self.sizes: like(call[self.sizes], local)}
