"""Small vision encoders, one per form, whose patches see each other within a unit only, and batches for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from skillgen.runtime.grid_rows import GridRows
from skillgen.runtime.image_batch import ImageBatch

PATCH, MERGE, CHANNELS, HIDDEN, OUT = 2, 2, 3, 8, 6
FEATURES = CHANNELS * PATCH * PATCH


@dataclasses.dataclass
class PackedSeqParams:
    """The fields of megatron-core's class of this name."""

    qkv_format: str | None = None
    cu_seqlens_q: Tensor | None = None
    cu_seqlens_kv: Tensor | None = None
    cu_seqlens_q_padded: Tensor | None = None
    cu_seqlens_kv_padded: Tensor | None = None
    max_seqlen_q: Any = None
    max_seqlen_kv: Any = None
    local_cp_size: int | None = None
    cp_group: Any = None
    total_tokens: int | None = None
    seq_idx: Tensor | None = None
    tokens_per_sample: int | None = None
    pad_between_seqs: bool | None = None

    def __post_init__(self) -> None:
        if self.total_tokens is not None and self.cu_seqlens_q is not None:
            lengths = self.cu_seqlens_q.diff()
            self.seq_idx = torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(torch.int32)[None]


class Toy(nn.Module):
    """Patches of a unit are embedded by kind, mixed, merged into rows and projected."""

    def __init__(
        self,
        *,
        container: str = "tensor",
        deepstack: Sequence[int] = (),
        squeeze: bool = False,
        poison: bool = False,
        recompute: bool = False,
        tubelet: int = 1,
    ) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.container, self.squeeze, self.poison, self.recompute = container, squeeze, poison, recompute
        self.tubelet = tubelet
        self.embed = nn.ModuleDict(
            {"image": nn.Linear(FEATURES, HIDDEN), "video": nn.Linear(tubelet * FEATURES, HIDDEN)}
        )
        self.mix = nn.Linear(HIDDEN, HIDDEN)
        self.projector = nn.Linear(HIDDEN, OUT)
        self.deep = nn.ModuleList(nn.Linear(HIDDEN, width) for width in deepstack)
        self.seen: set[str] = set()
        self.blank: list[bool] = []  # per row: whether its unit is blank, and is to come out as NaN
        self.to(torch.float64)

    def rows(self, patches: Tensor, merge: Callable[[Tensor], Tensor], kind: str = "image") -> Tensor:
        """Rows [rows, HIDDEN] of one unit from its patches [patches, features]."""
        self.seen.add(kind)
        x = torch.tanh(self.embed[kind](patches))
        x = merge(x + torch.tanh(self.mix(x)).mean(0))
        self.blank += [self.poison and not patches.any()] * len(x)
        return x

    def finish(self, items: list[Tensor]) -> Any:
        """Project the rows of every item, poison those of blank ones, and put them into the container."""
        if not items:
            raise RuntimeError("torch.cat(): expected a non-empty list of Tensors")
        rows = torch.cat(items)
        features = checkpoint(self.projector, rows, use_reentrant=False) if self.recompute else self.projector(rows)
        levels = [level(rows) for level in self.deep]
        if self.poison:
            blank = torch.tensor(self.blank)[:, None]
            features, *levels = (level.masked_fill(blank, torch.nan) for level in (features, *levels))
        self.blank = []
        if self.squeeze:
            features = features.squeeze(0)
        by_item = features.split([len(item) for item in items])
        containers: dict[str, Callable[[], Any]] = {
            "tensor": lambda: features,
            "tuple": lambda: tuple(by_item),
            "list": lambda: list(by_item),
            "pooler": lambda: Output(pooler_output=features),
            "pooler_tuple": lambda: Output(pooler_output=tuple(by_item)),
            "pooler_deepstack": lambda: DeepOutput(rows, features, levels),
            "pooler_deepstack_tuple": lambda: DeepOutput(
                rows, tuple(by_item), [level.split([len(item) for item in items]) for level in levels]
            ),
            "stacked": lambda: features.view(len(items), -1, features.shape[-1]),
            "deepstack": lambda: (features, levels),
        }
        return containers[self.container]()


@dataclasses.dataclass
class Output:
    """The part of a transformers output object that matters."""

    last_hidden_state: Tensor | None = None
    pooler_output: Any = None


@dataclasses.dataclass
class DeepOutput:
    """An output object with deepstack levels, whose fields have no defaults."""

    last_hidden_state: Tensor
    pooler_output: Any
    deepstack_features: Any


class ImageToy(Toy):
    """Images [N, C, H, W] padded at the right and bottom, with sizes."""

    form = ImageBatch(patch_size=PATCH, merge_size=MERGE)

    def encode(self, pixel_values: Tensor, image_sizes: Tensor | None = None) -> Any:
        sizes = [pixel_values.shape[-2:]] * len(pixel_values) if image_sizes is None else image_sizes.tolist()
        return self.finish([self.image(image, size) for image, size in zip(pixel_values, sizes, strict=True)])

    def image(self, image: Tensor, size: Sequence[int]) -> Tensor:
        height, width = (side // PATCH for side in size)
        assert image[:, size[0] :].count_nonzero() == 0 and image[:, :, size[1] :].count_nonzero() == 0
        patches = patchify(image[:, : height * PATCH, : width * PATCH])
        return self.rows(patches, lambda x: merge_grid(x.view(height, width, -1)[: height // 2 * 2, : width // 2 * 2]))


class GridToy(Toy):
    """Packed pixel rows in merge order, with a grid."""

    form = GridRows(merge_size=MERGE)

    def __init__(self, *, whole: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.whole = whole  # the frames of an item see each other

    def forward(self, pixel_values: Tensor, image_grid_thw: Any) -> Any:
        grid = image_grid_thw.tolist() if isinstance(image_grid_thw, Tensor) else image_grid_thw
        grid = [(1, t * h, w) if self.whole else (t, h, w) for t, h, w in grid]
        frames = pixel_values.split([h * w for t, h, w in grid for _ in range(t)])
        rows = [self.rows(frame, lambda x: x.view(-1, MERGE**2, HIDDEN).mean(1)) for frame in frames]
        units = iter(rows)
        return self.finish([torch.cat([next(units) for _ in range(t)]) for t, _, _ in grid])

    encode = forward


class PackedToy(Toy):
    """Packed patches or padded images with sizes, bounds and frame counts; images and videos are embedded apart."""

    def encode(
        self,
        images: Tensor,
        imgs_sizes: Tensor | None = None,
        vision_packed_seq_params: PackedSeqParams | None = None,
        num_frames: Tensor | None = None,
    ) -> Any:
        if imgs_sizes is None:
            return self.finish([self.frames(patchify(image)[None], image.shape[-2:]) for image in images])
        sizes = imgs_sizes.tolist()
        lengths = [h // PATCH * (w // PATCH) for h, w in sizes]
        if vision_packed_seq_params is not None:
            assert vision_packed_seq_params.cu_seqlens_q.diff().tolist() == lengths
            assert int(vision_packed_seq_params.max_seqlen_q) == max(lengths)
        if images.ndim == 4:
            patches = [patchify(image[:, :h, :w]) for image, (h, w) in zip(images, sizes, strict=True)]
        else:
            patches = list(images.squeeze(0).split(lengths))
        counts = [1] * len(sizes) if num_frames is None else num_frames.tolist()
        first, items = 0, []
        for count in counts:
            items.append(self.frames(torch.stack(patches[first : first + count]), sizes[first]))
            first += count
        assert first == len(sizes)
        return self.finish(items)

    def frames(self, frames: Tensor, size: Sequence[int]) -> Tensor:
        """One image, or a video in tubelets whose last one repeats the last frame."""
        grid = [side // PATCH for side in size]
        if len(frames) == 1:
            return self.rows(frames[0], lambda x: merge_grid(x.view(*grid, -1)))
        short = -len(frames) % self.tubelet
        tubelets = torch.cat([frames, frames[-1:].expand(short, -1, -1)]).split(self.tubelet)
        return torch.cat(
            [
                self.rows(t.transpose(0, 1).flatten(1), lambda x: merge_grid(x.view(*grid, -1)), "video")
                for t in tubelets
            ]
        )


def patchify(image: Tensor) -> Tensor:
    """Patches [h * w, C * P * P] of an image [C, H, W]."""
    return F.unfold(image[None], PATCH, stride=PATCH)[0].T


def merge_grid(x: Tensor) -> Tensor:
    """Mean of 2 x 2 cells of a grid [h, w, hidden] padded to even sides, as rows."""
    x = F.pad(x, (0, 0, 0, x.shape[1] % 2, 0, x.shape[0] % 2))
    return x.unflatten(1, (-1, 2)).unflatten(0, (-1, 2)).mean(dim=(1, 3)).flatten(0, 1)


def image_batch(*grids: tuple[int, int], sizes: bool = True) -> dict[str, Any]:
    """Images of (h, w) patches, padded to the largest."""
    generator = torch.Generator().manual_seed(1)
    sides = [(h * PATCH, w * PATCH) for h, w in grids]
    height, width = max(h for h, _ in sides), max(w for _, w in sides)
    pixels = torch.zeros(len(grids), CHANNELS, height, width, dtype=torch.float64)
    for image, (h, w) in zip(pixels, sides, strict=True):
        image[:, :h, :w] = torch.randn(CHANNELS, h, w, generator=generator, dtype=torch.float64)
    return {"pixel_values": pixels, "image_sizes": torch.tensor(sides) if sizes else None}


def grid_batch(*grids: tuple[int, int, int]) -> dict[str, Any]:
    """Packed rows of items of (t, h, w) patches."""
    generator = torch.Generator().manual_seed(2)
    total = sum(t * h * w for t, h, w in grids)
    pixels = torch.randn(total, FEATURES, generator=generator, dtype=torch.float64)
    return {"pixel_values": pixels, "image_grid_thw": torch.tensor(grids)}


def packed_batch(*items: tuple[int, int, int], padded: bool = False) -> dict[str, Any]:
    """Items of (frames, h, w): packed patches with sizes, bounds and frame counts, or padded images."""
    sizes = [(h * PATCH, w * PATCH) for frames, h, w in items for _ in range(frames)]
    lengths = [h * w for frames, h, w in items for _ in range(frames)]
    if padded:
        pixels = image_batch(*((h // PATCH, w // PATCH) for h, w in sizes))["pixel_values"]
    else:
        pixels = grid_batch((1, 1, sum(lengths)))["pixel_values"][None]
    return {
        "images": pixels,
        "imgs_sizes": torch.tensor(sizes),
        "vision_packed_seq_params": None if padded else packed_params(lengths),
        "num_frames": torch.tensor([frames for frames, _, _ in items]),
    }


def packed_params(lengths: Sequence[int], **fields: Any) -> PackedSeqParams:
    """Bounds of sequences of these lengths."""
    bounds = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(torch.int32)
    longest = max(lengths)
    given = {"qkv_format": "thd", "cu_seqlens_q": bounds, "cu_seqlens_kv": bounds, "max_seqlen_q": longest}
    return PackedSeqParams(**{**given, "max_seqlen_kv": longest, **fields})


def language_model(group: Any) -> Any:
    """The one thing that the runtime reads of a language model."""
    return SimpleNamespace(pg_collection=SimpleNamespace(cp=group))
