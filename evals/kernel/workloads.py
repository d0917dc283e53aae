"""Batches for comparing how vision work is shared: grids (t, h, w) of patches, seeded; no torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

Grid = tuple[int, int, int]

LARGE = 16384  # patches of an image of 2048 x 2048 pixels and patches of 16 x 16


def lognormal_images(count: int, rng: Random, *, median: float = 1024, largest: int = LARGE) -> list[Grid]:
    """Images whose area is lognormal (sigma 0.8) and whose aspect ratio is too (sigma 0.3), as photographs are."""
    grids = []
    for _ in range(count):
        area = min(max(rng.lognormvariate(math.log(median), 0.8), 16.0), float(largest))
        aspect = rng.lognormvariate(0, 0.3)
        grids.append((1, _even(math.sqrt(area * aspect)), _even(math.sqrt(area / aspect))))
    return grids


def large_images_and_frames(
    images: int, frames: int, rng: Random, *, largest: int = LARGE, frame: int = 256
) -> list[Grid]:
    """A few images of at least three quarters of the largest size, then one video of many small frames."""
    sides = [_even(math.sqrt(largest * rng.uniform(0.75, 1.0))) for _ in range(images)]
    side = _even(math.sqrt(frame))
    return [*((1, side, side) for side in sides), (frames, side, side)]


def mixed(rng: Random, *, scale: float = 1.0) -> list[Grid]:
    """Images of mixed sizes and a few videos of unequal length, shuffled."""
    grids = lognormal_images(24, rng, median=1024 * scale, largest=int(LARGE * scale))
    for _ in range(4):
        side = _even(math.sqrt(rng.choice((256, 576, 1024)) * scale))
        grids.append((rng.randint(4, 32), side, side))
    rng.shuffle(grids)
    return grids


def equal_frames(count: int) -> list[Grid]:
    """One video: nothing to gain over cutting it in order."""
    return [(count, 16, 16)]


WORKLOADS: dict[str, Callable[[Random], list[Grid]]] = {
    "64 lognormal images": lambda rng: lognormal_images(64, rng),
    "256 lognormal images": lambda rng: lognormal_images(256, rng),
    "images and videos mixed": mixed,
    "4 large images, 256 video frames": lambda rng: large_images_and_frames(4, 256, rng),
    "8 large images, 1024 video frames": lambda rng: large_images_and_frames(8, 1024, rng),
    "a video of 64 equal frames": lambda rng: equal_frames(64),
}

# The same shapes, small enough for towers on a CPU.
SMALL: dict[str, Callable[[Random], list[Grid]]] = {
    "48 lognormal images": lambda rng: lognormal_images(48, rng, median=48, largest=400),
    "4 large images, 96 video frames": lambda rng: large_images_and_frames(4, 96, rng, largest=400, frame=16),
    "a video of 32 equal frames": lambda rng: [(32, 4, 4)],
}


def units(grids: list[Grid]) -> list[int]:
    """Patches of every frame, in order."""
    return [h * w for t, h, w in grids for _ in range(t)]


def _even(side: float) -> int:
    """The nearest even number of patches: two by two of them become a row of features."""
    return max(2 * round(side / 2), 2)
