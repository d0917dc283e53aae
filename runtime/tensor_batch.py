"""Equal images as entries of one tensor."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .forms import Call, Units
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
        return Units(runs, (self.tokens,) * len(runs), ("image",) * len(runs), self.tokens, patches)

    def take(self, call: Call, share: Sequence[Segment], placeholders: Sequence[str]) -> Call:
        """Cut out a share, with its last group filled up, then append a group of zeros for each placeholder."""
        pixels = call[self.pixels]
        pieces = [pixels[start * self.group : (start + count) * self.group] for _, start, count in share]
        missing = -sum(map(len, pieces)) % self.group
        pieces.append(pixels[-1:].expand(missing, *pixels.shape[1:]))
        pieces.append(pixels.new_zeros(len(placeholders) * self.group, *pixels.shape[1:]))
        return {self.pixels: torch.cat(pieces)}
