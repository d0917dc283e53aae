"""A small vision encoder with tensor-parallel layers, worlds of text TP x CP ranks, and checks that mutants share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from skillgen.runtime.tp_dp import GridBlocks, VisionGroups, encode, groups, replicas
from tests.runtime.sharding import levels_of, objective
from tests.runtime.toys import FEATURES, MERGE

HIDDEN, HEADS, OUT = 16, 8, 6
Grid = tuple[int, int, int]


class _Copy(torch.autograd.Function):
    """Forward: as it is. Backward: all-reduce."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _Reduce(torch.autograd.Function):
    """Forward: all-reduce. Backward: as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


class TpLinear(nn.Module):
    """A linear layer cut by columns or by rows over a group; whole without one."""

    def __init__(self, inputs: int, outputs: int, by: str, group: Any) -> None:
        super().__init__()
        whole = nn.Linear(inputs, outputs)
        self.by, self.group = by, group
        self.weight = nn.Parameter(part(whole.weight, 0 if by == "column" else 1, group))
        self.bias = nn.Parameter(part(whole.bias, 0, group) if by == "column" else whole.bias.detach())
        self.weight.tp_dim = 0 if by == "column" else 1  # type: ignore[attr-defined]
        self.bias.tp_dim = 0 if by == "column" else None  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        if self.group is None:
            return nn.functional.linear(x, self.weight, self.bias)
        if self.by == "column":
            return nn.functional.linear(_Copy.apply(x, self.group), self.weight, self.bias)
        return _Reduce.apply(nn.functional.linear(x, self.weight), self.group) + self.bias


def part(whole: Tensor, dim: int | None, group: Any) -> Tensor:
    """This rank's part of a tensor cut along `dim`."""
    if group is None or dim is None:
        return whole.detach()
    return whole.detach().chunk(group.size(), dim)[group.rank()].clone()


class Layer(nn.Module):
    """Attention within a frame, heads cut over the group, then an MLP."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.q, self.k, self.v = (TpLinear(HIDDEN, HIDDEN, "column", group) for _ in range(3))
        self.out = TpLinear(HIDDEN, HIDDEN, "row", group)
        self.up, self.down = TpLinear(HIDDEN, 2 * HIDDEN, "column", group), TpLinear(2 * HIDDEN, HIDDEN, "row", group)

    def forward(self, x: Tensor, frames: list[int]) -> Tensor:
        y = self.norms[0](x)
        q, k, v = (layer(y).unflatten(1, (-1, HIDDEN // HEADS)).split(frames) for layer in (self.q, self.k, self.v))
        seen = []
        for a, b, c in zip(q, k, v, strict=True):
            weights = torch.einsum("ihd,jhd->hij", a, b).div(math.sqrt(HIDDEN // HEADS)).softmax(-1)
            seen.append(torch.einsum("hij,jhd->ihd", weights, c).flatten(1))
        x = x + self.out(torch.cat(seen))
        return x + self.down(torch.tanh(self.up(self.norms[1](x))))


class Tower(nn.Module):
    """Rows and a deepstack level of merged patches, from packed pixel rows and a grid, over a vision TP group."""

    def __init__(self, group: Any = None, *, seed: int = 7, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        torch.manual_seed(seed)
        group = None if group is None or group.size() == 1 else group
        self.patch_embed = nn.Linear(FEATURES, HIDDEN)
        self.layers = nn.ModuleList(Layer(group) for _ in range(2))
        self.deepstack = nn.ModuleList([TpLinear(HIDDEN * MERGE**2, OUT * HEADS, "column", group),
                                        TpLinear(OUT * HEADS, OUT, "row", group)])  # fmt: skip
        self.merger = nn.ModuleList([TpLinear(HIDDEN * MERGE**2, OUT * HEADS, "column", group),
                                     TpLinear(OUT * HEADS, OUT, "row", group)])  # fmt: skip
        self.scale = nn.Buffer(torch.rand(()) + 1)
        self.encoded: list[int] = []  # patches of each call
        self.to(dtype)

    def forward(self, hidden_states: Tensor, grid_thw: Tensor) -> tuple[Tensor, list[Tensor]]:
        grid = grid_thw.tolist()
        assert len(hidden_states) == sum(t * h * w for t, h, w in grid)
        self.encoded.append(len(hidden_states))
        x = torch.tanh(self.patch_embed(hidden_states)) * self.scale
        levels = []
        for layer, last in zip(self.layers, (self.deepstack, self.merger), strict=True):
            x = layer(x, [h * w for t, h, w in grid for _ in range(t)]) if grid else x
            levels.append(last[1](torch.tanh(last[0](x.view(-1, MERGE**2 * HIDDEN)))))
        return levels[1], levels[:1]


def images(count: int) -> list[Grid]:
    """So many images and short videos of unequal sizes."""
    kinds = [(1, 4, 4), (1, 2, 2), (2, 2, 4), (1, 2, 6), (1, 6, 4), (3, 2, 2), (1, 4, 8)]
    return [kinds[i * 5 % 7] for i in range(count)]


def batch_of(grids: Sequence[Grid], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Pixels and the grid of images, as Qwen3-VL's tower takes them."""
    generator = torch.Generator().manual_seed(2)
    total = sum(t * h * w for t, h, w in grids)
    pixels = torch.randn(total, FEATURES, generator=generator, dtype=torch.float64)
    return {"hidden_states": pixels.to(dtype), "grid_thw": torch.tensor(grids, dtype=torch.int64).view(-1, 3)}


@functools.cache
def enumerated(lists: tuple[tuple[int, ...], ...]) -> dist.ProcessGroup:
    """This rank's group among lists of ranks, made by every rank."""
    made = {members: dist.new_group(list(members)) for members in lists}
    return next(group for members, group in made.items() if dist.get_rank() in members)


@dataclass(frozen=True)
class Place:
    """What megatron-core's groups look like to this rank: worlds of text TP x CP ranks, one after the other."""

    text_tp: int
    cp: int

    @property
    def world(self) -> dist.ProcessGroup:
        return enumerated(self._ranks((self.text_tp * self.cp, 1)))

    @property
    def text(self) -> dist.ProcessGroup:
        return enumerated(self._ranks((self.text_tp, 1)))

    @property
    def cp_group(self) -> dist.ProcessGroup:
        return enumerated(self._ranks((self.cp, self.text_tp)))

    def _ranks(self, shape: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
        size, step = shape
        ranks = torch.arange(dist.get_world_size()).view(-1, size, step).transpose(1, 2).reshape(-1, size)
        return tuple(map(tuple, ranks.tolist()))

    @functools.cache  # noqa: B019
    def vision(self, tp: int) -> VisionGroups:
        return groups.make_groups(tp, text_tp=self.text, world=self.world, reuse=[self.cp_group])


def shard(tower: Tower, made: VisionGroups, **options: Any) -> Callable[..., Any]:
    """The tower, its images shared out."""
    return encode.shard_tower(tower, groups=made, merge_size=MERGE, alpha=16, modules=[tower], **options)


@functools.cache
def reference(grids: tuple[Grid, ...], frozen: Callable[[Tower], Any]) -> tuple[Tower, list[Tensor]]:
    """A whole tower with its gradients, and what it makes of the images."""
    tower = Tower()
    frozen(tower)
    levels = levels_of(tower(**batch_of(grids)))
    if levels[0].requires_grad:
        objective(levels, rank=None, ranks=1).backward()
    return tower, [level.detach() for level in levels]


def all_trainable(tower: Tower) -> None:
    """As it is."""


def all_frozen(tower: Tower) -> None:
    """Nothing is trainable."""
    tower.requires_grad_(False)


def check_parity(
    rank: int,
    place: Place,
    tp: int,
    grids: Sequence[Grid],
    *,
    checkpointed: bool | None = None,
    frozen: Callable[[Tower], Any] = all_trainable,
    **options: Any,
) -> None:
    """Features equal those of one rank, and so do gradients summed over the replicas and then over CP."""
    made = place.vision(tp)
    tower, batch = Tower(made.tp), batch_of(grids)
    frozen(tower)
    (whole, expected), run = reference(tuple(grids), frozen), shard(tower, made, **options)
    if checkpointed is None:
        output = run(**batch)
    else:
        batch["hidden_states"].requires_grad_()  # reentrant checkpointing wants an input that does
        output = checkpoint(lambda *given: tuple(levels_of(run(*given))), *batch.values(), use_reentrant=checkpointed)
    for ours, theirs in zip(levels_of(output), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    if checkpointed is None and all(p.grad is None for p in whole.parameters()):
        assert not any(level.requires_grad for level in levels_of(output))
        return
    objective(output, rank=place.cp_group.rank(), ranks=place.cp).backward()  # equal over text TP, partial over CP
    replicas.sum_replica_gradients(tower, made.replicas)
    for name, theirs in whole.named_parameters():
        ours = tower.get_parameter(name)
        if theirs.grad is None:  # frozen, or there are no images
            assert ours.grad is None
            continue
        assert ours.grad is not None, f"rank {rank}: {name} has no gradient"
        dist.all_reduce(ours.grad, group=place.cp_group)
        wanted = part(theirs.grad, getattr(ours, "tp_dim", None), made.tp)
        torch.testing.assert_close(ours.grad, wanted, msg=lambda m, name=name: f"gradient of {name}: {m}")


def check_padding(rank: int, place: Place, tp: int, grids: Sequence[Grid]) -> None:
    """Free space full of NaN stays there."""
    blank, made = GridBlocks._blank, place.vision(tp)

    def poisoned(self: GridBlocks, call: Any, width: int) -> Any:
        return {
            **blank(self, call, width),
            self.pixels: torch.full_like(blank(self, call, width)[self.pixels], torch.nan),
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GridBlocks, "_blank", poisoned)
        levels = levels_of(shard(Tower(made.tp), made, block_patches=64)(**batch_of(grids)))
    for ours, theirs in zip(levels, reference(tuple(grids), all_frozen)[1], strict=True):
        torch.testing.assert_close(ours, theirs)


def check_same_work(rank: int, place: Place, tp: int, counts: Sequence[int]) -> None:
    """In blocks, every rank encodes the same number of patches, whatever the number of images."""
    made = place.vision(tp)
    tower = Tower(made.tp)
    for count in counts:
        shard(tower, made, block_patches=32)(**batch_of(images(count)))
    everyone: list[Any] = [None] * place.world.size()
    dist.all_gather_object(everyone, tower.encoded, group=place.world)
    assert all(patches == tower.encoded for patches in everyone)
    assert all(patches and patches % 32 == 0 for patches in tower.encoded)
