"""What every family gives the suites: a tiny real model, batches, and where its tower is."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from skillgen.evals.kernel.harness import Harness

VOCAB = 128
TEXT_IDS = (10, 90)
IMAGE_ID, VIDEO_ID, AUDIO_ID = 100, 101, 102
VISION_START, VISION_END, AUDIO_START, AUDIO_END = 103, 104, 105, 106
SEQUENCE_MULTIPLE = 16  # divisible by 2 * CP for CP up to 8


@dataclass(frozen=True)
class Item:
    """An image of rows x cols feature rows, or a video of `frames` temporal patches of that size each.

    `odd` takes one patch off both sides of the grid, where the family pads odd grids.
    """

    rows: int
    cols: int
    frames: int = 0
    odd: bool = False


@dataclass
class Batch:
    """Arguments of a model's forward, all on one device, equal on all ranks of a CP group."""

    inputs: dict[str, Any]
    pixels: tuple[str, ...]  # names of the pixel tensors in `inputs`
    labels: Tensor  # [1, sequence]
    loss_mask: Tensor  # [1, sequence]
    feature_rows: int = 0
    calls: int = 0  # how often forward calls the encoder

    def leaves(self, dtype: torch.dtype) -> tuple[dict[str, Any], list[Tensor]]:
        """Fresh inputs whose pixel tensors are leaves that require grad, and those leaves."""
        inputs = dict(self.inputs)
        leaves = []
        for name in self.pixels:
            leaf = inputs[name].detach().to(dtype).requires_grad_()
            inputs[name] = leaf
            leaves.append(leaf)
        return inputs, leaves


@dataclass(frozen=True)
class Layout:
    """The process groups of one rank."""

    cp: dist.ProcessGroup
    tp: dist.ProcessGroup
    cp_size: int  # as configured; the group's size unless a case lies about it
    sliced_with: dist.ProcessGroup | None = None  # the language model's group, where a case makes it another one

    @property
    def collection(self) -> Any:
        """What the model takes for a ProcessGroupCollection."""
        return types.SimpleNamespace(cp=self.cp, tp=self.tp, pp=self.tp)

    @property
    def language_collection(self) -> Any:
        """The collection of the language model."""
        return types.SimpleNamespace(cp=self.sliced_with or self.cp, tp=self.tp)


class Family(ABC):
    """One model family of the target."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    module: ClassVar[str]
    video: ClassVar[bool] = False
    levels: ClassVar[int] = 0  # deepstack levels beside the main features
    hidden: ClassVar[int] = 64  # of the language model
    odd_grids: ClassVar[bool] = False
    labels_sliced_by_model: ClassVar[bool] = True
    splitter: str = "balanced"
    variants: ClassVar[tuple[str, ...]] = ("",)

    def __init__(self, harness: Harness, variant: str = "") -> None:
        self.variant = variant
        harness.shells(*self.packages)
        self.prepare(harness)
        self.code: Any = harness.load(self.module)
        harness.stands_in(f"{self.name}: language model replaced by a position-wise stub (embedding, MLP, loss)")

    def prepare(self, harness: Harness) -> None:
        """Install what the modeling file needs before it is imported; nothing for most."""
        del harness

    @abstractmethod
    def build(self, layout: Layout, flag: bool, *, large: bool = False) -> nn.Module:
        """The target's own model class through its own constructor, in fp32 on CPU."""

    @abstractmethod
    def batch(self, items: Sequence[Item], seed: int) -> Batch:
        """Inputs for these items in this order, on CPU."""

    @abstractmethod
    def tower(self, model: nn.Module) -> nn.Module:
        """The module that encodes patches."""

    @abstractmethod
    def projector(self, model: nn.Module) -> nn.Module:
        """The module that projects features to the language model's width, where need be a part of the tower."""

    @abstractmethod
    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Patches in one call of the tower."""

    def replicate(self, model: nn.Module) -> None:
        """Undo the sharding of a model whose flag is on, where the flag also changes what is encoded (odd grids)."""
        raise NotImplementedError(f"{self.name} encodes the same with and without the flag; {type(model).__name__}")

    def checkpoint_tower(self, model: nn.Module) -> None:
        """Turn the tower's own activation checkpointing on."""
        self.tower(model).gradient_checkpointing_enable()  # type: ignore[operator]

    def vision(self, model: nn.Module) -> list[tuple[str, nn.Parameter]]:
        """Names and parameters of tower and projector, each once."""
        parts = nn.ModuleDict({"tower": self.tower(model), "projector": self.projector(model)})
        return list(parts.named_parameters())


class PointwiseLM(nn.Module):
    """Stand-in for the language model: every position on its own, so that each CP rank's loss is its shard's."""

    def __init__(self, hidden: int, *, levels: int = 0, collection: Any = None) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB, hidden)
        self.up = nn.Linear(hidden, 2 * hidden)
        self.head = nn.Linear(2 * hidden, VOCAB)
        self.mix = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(levels))
        self.pg_collection = collection
        self.share_embeddings_and_output_weights = False
        self.seen: list[Tensor] = []

    def embedding(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """[batch, sequence] ids to [sequence, batch, hidden]."""
        return self.words(input_ids).transpose(0, 1).contiguous()

    def shared_embedding_or_output_weight(self) -> None:
        return None

    def set_input_tensor(self, input_tensor: Any) -> None:
        del input_tensor

    def forward(
        self,
        *args: Any,
        decoder_input: Tensor,
        labels: Tensor,
        visual_pos_masks: Tensor | None = None,
        deepstack_visual_embeds: list[Tensor] | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Per-token loss [batch, local sequence]; keeps what it was given in `seen`."""
        hidden = decoder_input.transpose(0, 1)
        self.seen = [decoder_input, *(deepstack_visual_embeds or [])]
        hidden = hidden + 0.0
        for layer, embeds in zip(self.mix, deepstack_visual_embeds or [], strict=False):
            hidden[visual_pos_masks] = hidden[visual_pos_masks] + layer(embeds)
        logits = self.head(F.gelu(self.up(hidden)))
        return F.cross_entropy(logits.transpose(1, 2).float(), labels, reduction="none")


def zigzag(length: int, ranks: int, rank: int) -> Tensor:
    """Positions of a CP rank's two chunks out of 2 * ranks, as Megatron slices a dense sequence."""
    chunks = torch.arange(length).view(2 * ranks, -1)
    return torch.cat([chunks[rank], chunks[2 * ranks - rank - 1]])


def settle_weights(model: nn.Module, seed: int) -> None:
    """Seeded weights large enough that a wrong row shows; equal on all ranks and in both arms."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.ndim == 0:
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                around = 0.0 if name.endswith("bias") else 1.0
                parameter.copy_(around + 0.1 * noise)
            else:
                parameter.copy_(noise * parameter[0].numel() ** -0.5)


def sequence(blocks: Sequence[tuple[int, int]], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """input_ids, labels, loss_mask [1, S]: text around each block of (token id, count), padded for CP up to 8."""
    generator = torch.Generator().manual_seed(seed)

    def text(count: int) -> Tensor:
        return torch.randint(*TEXT_IDS, (count,), generator=generator)

    parts = [text(3)]
    for token, count in blocks:
        parts += [torch.tensor([VISION_START]), torch.full((count,), token), torch.tensor([VISION_END]), text(2)]
    length = sum(part.numel() for part in parts)
    parts.append(text(-length % SEQUENCE_MULTIPLE or SEQUENCE_MULTIPLE))
    ids = torch.cat(parts)[None]
    labels = torch.randint(*TEXT_IDS, ids.shape, generator=generator)
    loss_mask = (torch.rand(ids.shape, generator=generator) < 0.9).float()
    return ids, labels, loss_mask


def images(count: int) -> list[Item]:
    """`count` images, of unequal sizes from two on, with equal ones among them from three on: a wrong order shows."""
    sizes = ((2, 3), (4, 2), (2, 3), (1, 4), (4, 2), (3, 3), (2, 2), (5, 4))
    return [Item(*sizes[i % len(sizes)]) for i in range(count)]


def pixels(shape: Sequence[int], seed: int) -> Tensor:
    """Seeded noise."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 7))
