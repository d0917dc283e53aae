"""The forms in which encoders take images: what their units are, and how a rank's share is cut out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from .plan import Run, Segment


Call = dict[str, Any]
Size = tuple[int, int]

PLACEHOLDER_ROWS = 2  # one row is not enough: towers that squeeze a dimension of one crash on it


class Units(NamedTuple):
    """What a batch consists of, as host integers; equal on all ranks that see the same batch."""

    runs: tuple[Run, ...]
    rows: tuple[int, ...]  # feature rows that one unit of each run yields after projection
    kinds: tuple[str, ...]  # the part of the encoder that each run exercises
    blank_rows: int = PLACEHOLDER_ROWS  # rows that one placeholder yields


class Form(Protocol):
    """How an encoder takes its images; arguments travel by name, so positional and keyword calls are one."""

    pixels: str

    def units(self, call: Call) -> Units:
        """Read the batch's units from its metadata."""

    def take(self, call: Call, share: Sequence[Segment], fill: Sequence[str]) -> Call:
        """Return the arguments for a share, followed by one placeholder for each kind in `fill`."""


@dataclass(frozen=True)
class ImageBatch:
    """Images [N, C, H, W] padded at the right and bottom, their sizes [N, 2] (height, width) in pixels or None."""

    patch_size: int
    merge_size: int
    pixels: str = "pixel_values"
    sizes: str = "image_sizes"

    def units(self, call: Call) -> Units:
        """One unit per image; rows are the merged grid."""
        given = call.get(self.sizes)
        grids = [_grid(size, self.patch_size) for size in _sizes(call[self.pixels], given)]
        rows = tuple((height // self.merge_size) * (width // self.merge_size) for height, width in grids)
        return Units(tuple(Run(h * w) for h, w in grids), rows, ("image",) * len(grids), _blank_rows(given, rows))

    def take(self, call: Call, share: Sequence[Segment], fill: Sequence[str]) -> Call:
        """Cut out images, cropped to the largest of them."""
        pixels, given = call[self.pixels], call.get(self.sizes)
        sizes, side = _sizes(pixels, given), self.patch_size * self.merge_size
        ranges = [(segment.run, segment.run + 1) for segment in share]
        blanks = [sizes[0] if _is_static(given) else (side, PLACEHOLDER_ROWS * side)] * len(fill)
        local = [sizes[start] for start, _ in ranges] + blanks
        return {**call, self.pixels: _take_images(pixels, ranges, local), self.sizes: _like(given, local)}


@dataclass(frozen=True)
class GridRows:
    """Packed pixel rows [sum(t * h * w), features] and a grid [items, 3] of (t, h, w) patches.

    A temporal patch is a unit unless `split_frames` is False: then the frames of an item see each other.
    """

    merge_size: int
    pixels: str = "pixel_values"
    grid: str = "image_grid_thw"
    split_frames: bool = True

    def units(self, call: Call) -> Units:
        """One run per item."""
        grid = [(t, h, w) if self.split_frames else (1, t * h, w) for t, h, w in call[self.grid].tolist()]
        return Units(
            runs=tuple(Run(h * w, t) for t, h, w in grid),
            rows=tuple(h * w // self.merge_size**2 for _, h, w in grid),
            kinds=("image",) * len(grid),
        )

    def take(self, call: Call, share: Sequence[Segment], fill: Sequence[str]) -> Call:
        """Cut out pixel rows; an item that is cut becomes a shorter item on each of its ranks."""
        pixels, grid = call[self.pixels], call[self.grid]
        items = grid.tolist()
        starts = [0, *accumulate(t * h * w for t, h, w in items)]
        pieces, local = [], []
        for run, start, count in share:
            frames, height, width = items[run]
            size = height * width if self.split_frames else frames * height * width
            pieces.append(pixels[starts[run] + start * size : starts[run] + (start + count) * size])
            local.append([count if self.split_frames else frames, height, width])
        for _ in fill:
            local.append([1, self.merge_size, PLACEHOLDER_ROWS * self.merge_size])
            pieces.append(pixels.new_zeros(PLACEHOLDER_ROWS * self.merge_size**2, pixels.shape[1]))
        return {**call, self.pixels: torch.cat(pieces), self.grid: grid.new_tensor(local)}


@dataclass(frozen=True)
class PackedPatches:
    """Frames as packed patches [1, sum(patches), C*P*P] or padded images [N, C, H, W], with sizes [N, 2] in pixels.

    `num_frames` groups consecutive frames into items. With `tubelet` frames per tubelet, an item of one frame is an
    image and a longer one a video; a video's last tubelet repeats its last frame where frames are missing. A tubelet
    is never cut, and a lone last frame is repeated, so that the encoder still sees a video. Grids with an odd side are
    padded to even ones before pixel shuffle, which makes ceil(h / 2) * ceil(w / 2) rows.
    """

    patch_size: int
    tubelet: int = 1
    pixels: str = "images"
    sizes: str = "imgs_sizes"
    params: str = "vision_packed_seq_params"
    frames: str = "num_frames"

    def units(self, call: Call) -> Units:
        """One run per image or video; a video's unit is a tubelet."""
        given = call.get(self.sizes)
        sizes = _sizes(call[self.pixels], given)
        items = self._items(call, sizes)
        grids = [_grid(sizes[first], self.patch_size) for first, _ in items]
        rows = tuple(-(-h // 2) * -(-w // 2) for h, w in grids)
        return Units(
            runs=tuple(Run(h * w, -(-count // self.tubelet)) for (h, w), (_, count) in zip(grids, items)),
            rows=rows,
            kinds=tuple("image" if count == 1 else "video" for _, count in items),
            blank_rows=_blank_rows(given, rows),
        )

    def take(self, call: Call, share: Sequence[Segment], fill: Sequence[str]) -> Call:
        """Cut out whole tubelets and rewrite sizes, frame counts and sequence bounds to describe them."""
        pixels, given, params = call[self.pixels], call.get(self.sizes), call.get(self.params)
        sizes = _sizes(pixels, given)
        items = self._items(call, sizes)
        ranges: list[tuple[int, int]] = []
        counts: list[int] = []
        for run, start, count in share:
            first, total = items[run]
            begin, end = first + start * self.tubelet, first + min((start + count) * self.tubelet, total)
            lone = end - begin == 1 and total > 1
            ranges += [(begin, end)] * (2 if lone else 1)
            counts.append(2 if lone else end - begin)
        counts += [1 if kind == "image" else 2 for kind in fill]
        blank = sizes[0] if _is_static(given) else (2 * self.patch_size, 2 * PLACEHOLDER_ROWS * self.patch_size)
        local = [size for begin, end in ranges for size in sizes[begin:end]]
        local += [blank] * sum(counts[len(share) :])
        if pixels.ndim == 4:
            taken = _take_images(pixels, ranges, local)
        else:
            patches = [h * w for h, w in (_grid(size, self.patch_size) for size in sizes)]
            starts = [0, *accumulate(patches)]
            pieces = [pixels[:, starts[begin] : starts[end]] for begin, end in ranges]
            missing = (len(local) - sum(end - begin for begin, end in ranges)) * (4 * PLACEHOLDER_ROWS)
            taken = torch.cat([*pieces, pixels.new_zeros(1, missing, pixels.shape[2])], dim=1)
        out = {**call, self.pixels: taken, self.sizes: _like(given, local)}
        if call.get(self.frames) is not None:
            out[self.frames] = _like(call[self.frames], counts if self.tubelet > 1 else [1] * len(local))
        if params is not None:
            out[self.params] = _packed_bounds(params, [h * w for h, w in (_grid(s, self.patch_size) for s in local)])
        return out

    def _items(self, call: Call, sizes: Sequence[Size]) -> list[tuple[int, int]]:
        """(first frame, number of frames) of every image or video."""
        frames = call.get(self.frames)
        if self.tubelet == 1 or frames is None or _is_static(call.get(self.sizes)):
            return [(frame, 1) for frame in range(len(sizes))]
        counts = frames.tolist() if isinstance(frames, Tensor) else list(frames)
        if sum(counts) != len(sizes):
            raise ValueError(f"{self.frames} must account for every row of {self.sizes}: {counts} for {len(sizes)}")
        items = list(zip([0, *accumulate(counts)], counts))
        for first, count in items:
            if len(set(sizes[first : first + count])) > 1:
                raise ValueError(f"the frames of a video must share one size, got {sizes[first : first + count]}")
        return items


def _grid(size: Size, patch_size: int) -> Size:
    return size[0] // patch_size, size[1] // patch_size


def _is_static(given: Tensor | Sequence[Any] | None) -> bool:
    return given is None or len(given) == 0


def _blank_rows(given: Tensor | Sequence[Any] | None, rows: Sequence[int]) -> int:
    """Rows of a placeholder: without sizes it can only be as large as every other image."""
    return rows[0] if rows and _is_static(given) else PLACEHOLDER_ROWS


def _sizes(pixels: Tensor, given: Tensor | Sequence[Any] | None) -> list[Size]:
    """Sizes as host integers; without any, every image fills the batch."""
    if given is None or _is_static(given):
        return [(pixels.shape[-2], pixels.shape[-1])] * (pixels.shape[0] if pixels.ndim == 4 else 0)
    rows = given.tolist() if isinstance(given, Tensor) else given
    return [(int(height), int(width)) for height, width in rows]


def _like(given: Any, values: list[Any]) -> Any:
    """`values` in the container of `given`; what is None or empty stays so."""
    if given is None or len(given) == 0:
        return given
    return given.new_tensor(values) if isinstance(given, Tensor) else values


def _take_images(pixels: Tensor, ranges: Sequence[tuple[int, int]], sizes: Sequence[Size]) -> Tensor:
    """Images of `ranges`, then blank ones up to len(sizes), cropped or padded to the largest of `sizes`."""
    height, width = max(h for h, _ in sizes), max(w for _, w in sizes)
    blanks = len(sizes) - sum(end - begin for begin, end in ranges)
    margins = (0, width - pixels.shape[3], 0, height - pixels.shape[2])
    taken = [F.pad(pixels[begin:end], margins) for begin, end in ranges]
    return torch.cat([*taken, pixels.new_zeros(blanks, pixels.shape[1], height, width)])


def _packed_bounds(params: Any, lengths: Sequence[int]) -> Any:
    """A copy of `PackedSeqParams` (any dataclass with its fields) whose bounds describe `lengths` only."""
    bounds = params.cu_seqlens_q.new_tensor([0, *accumulate(lengths)])
    longest = max(lengths)
    new: dict[str, Any] = {}
    for field in dataclasses.fields(params):
        value = getattr(params, field.name)
        if value is None or not field.init:
            continue
        if field.name.startswith("cu_seqlens"):
            new[field.name] = bounds
        elif field.name.startswith("max_seqlen"):
            new[field.name] = torch.full_like(value, longest) if isinstance(value, Tensor) else longest
        elif field.name == "total_tokens":
            new[field.name] = sum(lengths)
        elif field.name == "seq_idx":
            new[field.name] = None
    return dataclasses.replace(params, **new)
