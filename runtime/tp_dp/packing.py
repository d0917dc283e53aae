"""Units of unequal size in blocks of one size: integer arithmetic on run lengths, the same on every rank; no torch."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from ..plan import Run, Segment


Block = tuple[Segment, ...]  # whole units, ascending in (run, start)


def pack_blocks(runs: Sequence[Run], block_patches: int, multiple: int = 1) -> tuple[Block, ...]:
    """Pack the largest units first, each into the fullest block that has room; empty blocks fill up to `multiple`.

    Blocks are dealt so that each of `multiple` equal parts gets large units and small ones.
    """
    return _pack_blocks(tuple(runs), block_patches, multiple)


def free_space(runs: Sequence[Run], block: Sequence[Segment], block_patches: int) -> list[int]:
    """The patches that a block has left, in pieces no larger than the largest unit: attention costs their square."""
    largest = max(run.patches for run in runs)
    whole, rest = divmod(block_patches - sum(runs[run].patches * count for run, _, count in block), largest)
    return [largest] * whole + [rest] * bool(rest)


@lru_cache(maxsize=32)
def _pack_blocks(runs: tuple[Run, ...], block_patches: int, multiple: int) -> tuple[Block, ...]:
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
    blocks += [[] for _ in range(-len(blocks) % multiple)]
    return tuple(tuple(sorted(block)) for part in range(multiple) for block in blocks[part::multiple])
