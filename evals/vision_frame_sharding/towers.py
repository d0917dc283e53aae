"""What the tower cases need of every Automodel family: its tiny real tower behind the model's own method."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from skillgen.evals.kernel.families import Item, pixels

IMAGE_ID, VIDEO_ID, PAD_ID, VOCAB = 100, 101, 0, 128
HIDDEN = 32  # of the language model


class Unit(NamedTuple):
    """What a rank may own: the patch rows that the tower sees of it, and the feature rows that it gives."""

    patches: int
    rows: int


@dataclass
class TowerBatch:
    """Arguments of a model's method, equal on all ranks, and the units of each sharded call in their order."""

    inputs: dict[str, Any]
    pixels: tuple[str, ...]  # names of the pixel tensors in `inputs`
    calls: list[list[Unit]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Feature rows of the batch."""
        return sum(unit.rows for call in self.calls for unit in call)

    def moved(self, dtype: torch.dtype, device: torch.device, *, leaves: bool) -> tuple[dict[str, Any], list[Tensor]]:
        """The inputs on a device with pixels of `dtype`, and the pixel tensors, as leaves if asked for."""
        inputs = {
            name: value.to(device) if isinstance(value, Tensor) else value for name, value in self.inputs.items()
        }
        found = []
        for name in self.pixels:
            inputs[name] = inputs[name].detach().to(dtype).requires_grad_(leaves)
            found.append(inputs[name])
        return inputs, found


class Tower(ABC):
    """One family: the target's own class without its language model, and the method in which it encodes."""

    name: ClassVar[str]
    levels: ClassVar[int] = 0  # deepstack levels beside the main features
    video: ClassVar[bool] = True
    part: ClassVar[torch.dtype | None] = None  # in which a part of the target's code computes, whatever it is given
    wired: ClassVar[bool] = False  # upstream has a sharding of its own, since 0.6.0
    variants: ClassVar[tuple[str, ...]] = ("",)

    def __init__(self, harness: Any, variant: str = "") -> None:
        self.variant = variant
        self.code: Any = harness.load(f"components.models.{self.name}.model")
        harness.stands_in(f"{self.name}: the model holds its tower and projector; its language model is not built")

    @abstractmethod
    def build(self, *, large: bool = False) -> nn.Module:
        """The target's model class with its real tower, in the tower's own precision, on CPU."""

    @abstractmethod
    def batch(self, items: Sequence[Item], seed: int) -> TowerBatch:
        """Inputs for these items, images and videos, on CPU."""

    @abstractmethod
    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        """Main features and deepstack levels [rows, width] out of the model's own method."""

    @abstractmethod
    def tower(self, model: Any) -> nn.Module:
        """The module that encodes patches."""

    def upstream(self, model: Any, inputs: dict[str, Any], distribute: Any) -> list[Tensor]:
        """Features [rows, width] by upstream's own sharding function, called as upstream's method does."""
        raise NotImplementedError(f"upstream does not shard {self.name}")

    def cast(self, model: Any, dtype: torch.dtype) -> None:
        """Let the model compute in `dtype`."""
        model.to(dtype)

    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Patch rows in one call of the tower."""
        return int((args[0] if args else next(iter(kwargs.values()))).shape[0])


class GridTower(Tower):
    """A family that takes packed pixel rows and grids of (t, h, w), images and videos apart."""

    merge: ClassVar[int] = 2
    patch: ClassVar[int] = 4
    temporal: ClassVar[int] = 2
    videos: ClassVar[tuple[str, str]] = ("pixel_values_videos", "video_grid_thw")  # empty: they travel as images
    merged: bool = False  # images and videos are encoded in one call
    entries: ClassVar[bool] = False  # frames of an item see each other

    def qwen_sizes(self, large: bool) -> dict[str, int]:
        """The smallest vision configuration that Qwen's towers take."""
        width, depth = (128, 4) if large else (32, 2)
        return {
            "depth": depth,
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_heads": 2,
            "patch_size": self.patch,
            "temporal_patch_size": self.temporal,
            "spatial_merge_size": self.merge,
            "out_hidden_size": HIDDEN,
            "num_position_embeddings": 64,
        }

    def batch(self, items: Sequence[Item], seed: int) -> TowerBatch:
        grids = [(item.frames, item.rows * self.merge, item.cols * self.merge) for item in items]
        return self.from_grids(grids, seed)

    def from_grids(self, grids: Sequence[tuple[int, int, int]], seed: int) -> TowerBatch:
        """Inputs for grids (t, h, w) of patches; images where t is at most 1."""
        kinds: dict[str, list[list[int]]] = {"": [], "videos": []}
        for t, h, w in grids:
            kinds["videos" if t > 1 and self.videos[0] else ""].append([max(t, 1), h, w])
        names = {"": ("pixel_values", "image_grid_thw"), "videos": self.videos}
        tokens, batch = [], TowerBatch({"input_ids": None}, ())
        for number, (kind, rows) in enumerate(kinds.items()):
            values, grid = names[kind]
            batch.inputs |= {values: None, grid: None} if values else {}
            if not rows:
                continue
            count = sum(t * h * w for t, h, w in rows)
            batch.inputs[values] = pixels((count, 3 * self.temporal * self.patch**2), seed + number)
            batch.inputs[grid] = torch.tensor(rows)
            batch.pixels += (values,)
            tokens.append(torch.full((1, count // self.merge**2), VIDEO_ID if kind else IMAGE_ID))
            units = [unit for t, h, w in rows for unit in self.units(t, h, w)]
            batch.calls = [[*batch.calls[0], *units]] if self.merged and batch.calls else [*batch.calls, units]
        batch.inputs["input_ids"] = torch.cat(tokens or [torch.full((1, 1), PAD_ID)], dim=1)
        return batch

    def units(self, t: int, h: int, w: int) -> list[Unit]:
        """An item's frames, or the item as a whole."""
        split, whole = (1, t) if self.entries else (t, 1)
        return [Unit(whole * h * w, whole * h * w // self.merge**2)] * split


def bare(cls: type[nn.Module], **parts: Any) -> Any:
    """An object of the target's class whose constructor has not run, with these parts in it."""
    model = cls.__new__(cls)
    nn.Module.__init__(model)
    for name, part in parts.items():
        setattr(model, name, part)
    return model


class Words(nn.Module):
    """Stand-in for a language model: the token embedding, all zero, into which features are spliced."""

    def __init__(self, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding.from_pretrained(torch.zeros(VOCAB, hidden))

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens


def config(**values: Any) -> Any:
    """A configuration object of these values."""
    return types.SimpleNamespace(**values)
