"""Images and videos as packed patches, with sizes, frame counts and the bounds of their sequences."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .forms import PLACEHOLDER_ROWS, Call, Units, as_list, like
from .plan import Run, Segment


@dataclass(frozen=True, kw_only=True)
class PackedPatches:
    """Packed patches [1, patches, C * P * P] or images [N, C, H, W] padded to one size, and sizes [N, 2] in pixels.

    `frames` counts the images of each item. With a `tubelet` above 1, an item of several is a video, whose units are
    tubelets, never cut; a lone last frame is repeated, so that the encoder still sees a video. Grids are padded
    to even sides: ceil(h / 2) * ceil(w / 2) rows.
    """

    patch_size: int
    merge_size: int = 2
    tubelet: int = 1
    pixels: str = "images"
    sizes: str = "imgs_sizes"
    frames: str = "num_frames"
    params: str = "vision_packed_seq_params"

    def units(self, call: Call) -> Units:
        """One run per image or video."""
        sizes, items = self._items(call)
        grids = self._grids(sizes[first] for first, _ in items)
        return Units(
            runs=tuple(Run(h * w, -(-count // self.tubelet)) for (h, w), (_, count) in zip(grids, items)),
            rows=tuple(-(-h // self.merge_size) * -(-w // self.merge_size) for h, w in grids),
            kinds=tuple("image" if count == 1 else "video" for _, count in items),
            placeholder_patches=PLACEHOLDER_ROWS * self.merge_size**2,
        )

    def take(self, call: Call, share: Sequence[Segment], placeholders: Sequence[str]) -> Call:
        """Cut out a share and append placeholders; the metadata describe these only."""
        pixels, (sizes, items) = call[self.pixels], self._items(call)
        ranges, counts = [], []
        for run, start, count in share:
            first, total = items[run]
            begin, end = first + start * self.tubelet, first + min((start + count) * self.tubelet, total)
            lone = end - begin == 1 and total > 1
            ranges += [(begin, end)] * (2 if lone else 1)
            counts.append(2 if lone else end - begin)
        blanks = [1 if kind == "image" else 2 for kind in placeholders]
        side = self.patch_size * self.merge_size
        local = [size for begin, end in ranges for size in sizes[begin:end]]
        local += [(side, PLACEHOLDER_ROWS * side)] * sum(blanks)
        patches = [h * w for h, w in self._grids(local)]
        if pixels.ndim == 4:  # cropped to the largest of the share
            height, width = map(max, zip(*local))
            margins = (0, width - pixels.shape[3], 0, height - pixels.shape[2])
            pieces = [F.pad(pixels[begin:end], margins) for begin, end in ranges]
            taken = torch.cat([*pieces, pixels.new_zeros(sum(blanks), pixels.shape[1], height, width)])
        else:
            starts = [0, *accumulate(h * w for h, w in self._grids(sizes))]
            pieces = [pixels[:, starts[begin] : starts[end]] for begin, end in ranges]
            missing = patches[len(patches) - sum(blanks) :]
            taken = torch.cat([*pieces, pixels.new_zeros(1, sum(missing), pixels.shape[2])], dim=1)
        out = {self.pixels: taken, self.sizes: like(call[self.sizes], local)}
        if call.get(self.frames) is not None:
            frames = counts + blanks if self.tubelet > 1 else [1] * len(local)
            out[self.frames] = like(call[self.frames], frames)
        if call.get(self.params) is not None:
            out[self.params] = _packed_bounds(call[self.params], patches)
        return out

    def _grids(self, sizes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(height // self.patch_size, width // self.patch_size) for height, width in sizes]

    def _items(self, call: Call) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Sizes on the host, none for a batch without; (first image, number of images) of every image or video."""
        sizes = [(int(h), int(w)) for h, w in as_list(call.get(self.sizes))]
        if self.tubelet == 1 or call.get(self.frames) is None or not sizes:
            return sizes, [(image, 1) for image in range(len(sizes))]
        counts = as_list(call[self.frames])
        items = list(zip([0, *accumulate(counts)], counts))
        if sum(counts) != len(sizes) or any(len(set(sizes[first : first + n])) > 1 for first, n in items):
            raise ValueError(f"{self.frames} must cut {self.sizes} into items of one size: {counts} for {sizes}")
        return sizes, items


def _packed_bounds(params: Any, lengths: Sequence[int]) -> Any:
    """A copy of `PackedSeqParams` (any dataclass with its fields) whose bounds describe `lengths` only."""
    bounds, longest = params.cu_seqlens_q.new_tensor([0, *accumulate(lengths)]), max(lengths)
    found = {"cu_seqlens": bounds, "max_seqlen": longest, "total_tokens": sum(lengths), "seq_idx": None}
    set_fields = [f.name for f in dataclasses.fields(params) if f.init and getattr(params, f.name) is not None]
    new = {name: value for name in set_fields for start, value in found.items() if name.startswith(start)}
    for name in new:
        if name.startswith("max_seqlen") and isinstance(given := getattr(params, name), Tensor):
            new[name] = torch.full_like(given, longest)
    return dataclasses.replace(params, **new)
