"""Images of unequal size packed into blocks of a fixed number of patches."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ..forms import PLACEHOLDER_ROWS, Call, GridRows, Units, as_list, like
from ..plan import Run, Segment


@dataclass(frozen=True)
class Packing:
    """Whole units in blocks, each ascending in (run, start); `bound` is the least number of blocks that could do."""

    blocks: tuple[tuple[Segment, ...], ...]
    filled: float  # of the patches of all blocks, the empty ones included
    bound: int


def pack_blocks(runs: Sequence[Run], block_patches: int, multiple: int = 1) -> Packing:
    """Pack the largest units first, each into the fullest block that has room; empty blocks fill up to `multiple`.

    Blocks are dealt so that each of `multiple` equal parts gets large units and small ones.
    """
    return _pack_blocks(tuple(runs), block_patches, multiple)


@lru_cache(maxsize=32)
def _pack_blocks(runs: tuple[Run, ...], block_patches: int, multiple: int) -> Packing:
    largest = max((run.patches for run in runs), default=1)
    if block_patches < largest:
        raise ValueError(f"vision_block_patches must be at least the largest image's {largest}, got {block_patches}")
    by_size: dict[int, list[Segment]] = defaultdict(list)
    for index, run in enumerate(runs):
        by_size[run.patches].append(Segment(index, 0, run.count))
    blocks: list[list[Segment]] = []
    room: list[tuple[int, int]] = []  # (free patches, block), ascending
    for size in sorted(by_size, reverse=True):
        for index, start, count in by_size[size]:
            while count:
                at = bisect_left(room, (size, 0))
                if at == len(room):
                    blocks.append([])
                    room.append((block_patches, len(blocks) - 1))
                free, block = room.pop(at)
                number = min(count, free // size)
                blocks[block].append(Segment(index, start, number))
                insort(room, (free - number * size, block))
                start, count = start + number, count - number
    total = sum(run.patches * run.count for run in runs)
    blocks += [[] for _ in range(-len(blocks) % multiple)]
    dealt = [tuple(sorted(block)) for part in range(multiple) for block in blocks[part::multiple]]
    return Packing(tuple(dealt), total / (len(dealt) * block_patches) if dealt else 1.0, -(-total // block_patches))


@dataclass(frozen=True, kw_only=True)
class GridBlocks(GridRows):
    """Units are blocks of `block_patches` patches, the same number of them for each of `ranks` ranks.

    What is free in a block is a grid row of its own, so that no image attends to it.
    """

    block_patches: int
    ranks: int

    def __post_init__(self) -> None:
        cell = self.merge_size**2
        if self.block_patches < 1 or self.block_patches % cell:
            told = f"must be a positive multiple of the {cell} patches of a feature row"
            raise ValueError(f"vision_block_patches {told}, got {self.block_patches}")

    def pack(self, call: Call) -> tuple[Units, Packing]:
        """The images' own units, and their blocks."""
        units = super().units(call)
        return units, pack_blocks(units.runs, self.block_patches, self.ranks)

    def units(self, call: Call) -> Units:
        """One run of all blocks."""
        units, packing = self.pack(call)
        runs = (Run(self.block_patches, len(packing.blocks)),) if packing.blocks else ()
        rows = (self.block_patches // self.merge_size**2,) * len(runs)
        return Units(runs, rows, ("image",) * len(runs), units.blank)

    def take(self, call: Call, share: Sequence[Segment], fill: Sequence[str]) -> Call:
        """The blocks of a share, each with its free space at the end, then a placeholder for each of `fill`."""
        units, packing = self.pack(call)
        listed = {**call, self.grid: as_list(call[self.grid])}
        side, taken = self.merge_size, []
        for _, start, count in share:
            for block in packing.blocks[start : start + count]:
                taken.append(super().take(listed, block, []))
                if free := self.block_patches - sum(units.runs[run].patches * number for run, _, number in block):
                    taken.append(self._blank(call, free // side))
        taken += [self._blank(call, PLACEHOLDER_ROWS * side)] * len(fill)
        pixels = torch.cat([piece[self.pixels] for piece in taken])
        rows = [row for piece in taken for row in piece[self.grid]]
        return {**call, self.pixels: pixels, self.grid: like(call[self.grid], rows)}

    def _blank(self, call: Call, width: int) -> Call:
        side, pixels = self.merge_size, call[self.pixels]
        return {self.pixels: pixels.new_zeros(side * width, *pixels.shape[1:]), self.grid: [[1, side, width]]}

    def unpack_indices(self, call: Call) -> Tensor:
        """Where the images' feature rows stand among those of all blocks, in the order of the images."""
        units, packing = self.pack(call)
        found = []
        for number, block in enumerate(packing.blocks):
            begin = number * self.block_patches // self.merge_size**2
            for segment in block:
                end = begin + units.rows[segment.run] * segment.count
                found.append((segment, torch.arange(begin, end)))
                begin = end
        pieces = [piece for _, piece in sorted(found, key=lambda pair: pair[0])]
        return torch.cat([torch.arange(0), *pieces]).to(call[self.pixels].device)
