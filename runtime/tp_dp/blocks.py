"""Images of unequal size, taken by the encoder in blocks of a fixed number of patches."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..forms import PLACEHOLDER_ROWS, Call, Units, as_list, like
from ..grid_rows import GridRows
from ..plan import Run, Segment
from .packing import Block, free_space, pack_blocks


@dataclass(frozen=True, kw_only=True)
class GridBlocks(GridRows):
    """Units are blocks of `block_patches` patches, the same number of them for each of `ranks` ranks.

    What is free in a block is grid rows of its own, so that no image attends to it.
    """

    block_patches: int
    ranks: int

    def __post_init__(self) -> None:
        cell = self.merge_size**2
        if self.block_patches < 1 or self.block_patches % cell:
            told = f"must be a positive multiple of the {cell} patches of a feature row"
            raise ValueError(f"vision_block_patches {told}, got {self.block_patches}")

    def pack(self, call: Call) -> tuple[Units, tuple[Block, ...]]:
        """The images' own units, and their blocks."""
        units = super().units(call)
        return units, pack_blocks(units.runs, self.block_patches, self.ranks)

    def units(self, call: Call) -> Units:
        """One run of all blocks."""
        units, blocks = self.pack(call)
        runs = (Run(self.block_patches, len(blocks)),) if blocks else ()
        rows = (self.block_patches // self.merge_size**2,) * len(runs)
        return Units(runs, rows, ("image",) * len(runs), units.placeholder_rows, units.placeholder_patches)

    def take(self, call: Call, share: Sequence[Segment], placeholders: Sequence[str]) -> Call:
        """The blocks of a share, each with its free space at the end, then placeholders."""
        units, blocks = self.pack(call)
        listed = {**call, self.grid: as_list(call[self.grid])}
        side, taken = self.merge_size, []
        for _, start, count in share:
            for block in blocks[start : start + count]:
                taken.append(super().take(listed, block, []))
                free = free_space(units.runs, block, self.block_patches)
                taken += [self._blank(call, patches // side) for patches in free]
        taken += [self._blank(call, PLACEHOLDER_ROWS * side)] * len(placeholders)
        pixels = torch.cat([piece[self.pixels] for piece in taken])
        rows = [row for piece in taken for row in piece[self.grid]]
        return {self.pixels: pixels, self.grid: like(call[self.grid], rows)}

    def _blank(self, call: Call, width: int) -> Call:
        side, pixels = self.merge_size, call[self.pixels]
        return {self.pixels: pixels.new_zeros(side * width, *pixels.shape[1:]), self.grid: [[1, side, width]]}

    def unpack_indices(self, call: Call) -> Tensor:
        """Where the images' feature rows stand among those of all blocks, in the order of the images."""
        units, blocks = self.pack(call)
        found = []
        for number, block in enumerate(blocks):
            begin = number * self.block_patches // self.merge_size**2
            for segment in block:
                end = begin + units.rows[segment.run] * segment.count
                found.append((segment, torch.arange(begin, end)))
                begin = end
        pieces = [piece for _, piece in sorted(found, key=lambda pair: pair[0])]
        return torch.cat([torch.arange(0), *pieces]).to(call[self.pixels].device)
