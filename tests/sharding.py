"""Checks of the sharding runtime that run on every rank of a forked group; plain functions, shared with the mutants."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # checkpoint and dispatch modes need it, assert_close the next one: once here, not in every rank
import torch.distributed as dist
import torch.distributed.tensor
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from skillgen.runtime import api
from skillgen.runtime.forms import PackedPatches

from toys import PATCH, GridToy, ImageToy, PackedToy, Toy, grid_batch, image_batch, packed_batch


Case = Callable[[], tuple[Toy, Any, dict[str, Any]]]


def images(*grids: tuple[int, int], sizes: bool = True, **options: Any) -> Case:
    """A case of the form ImageBatch."""
    return lambda: (ImageToy(**options), ImageToy.form, image_batch(*grids, sizes=sizes))


def grid(*grids: tuple[int, int, int], **options: Any) -> Case:
    """A case of the form GridRows."""
    return lambda: (GridToy(**options), GridToy.form, grid_batch(*grids))


def packed(*items: tuple[int, int, int], padded: bool = False, tubelet: int = 2, **options: Any) -> Case:
    """A case of the form PackedPatches."""
    form = PackedPatches(patch_size=PATCH, tubelet=tubelet)
    return lambda: (PackedToy(tubelet=tubelet, **options), form, packed_batch(*items, padded=padded))


def static(count: int, height: int, width: int, *, empty_sizes: bool = False) -> Case:
    """Images of one size without sizes, in the form PackedPatches."""

    def make() -> tuple[Toy, Any, dict[str, Any]]:
        batch: dict[str, Any] = {"images": image_batch(*[(height, width)] * count)["pixel_values"]}
        return PackedToy(), PackedPatches(patch_size=PATCH), batch

    return make


def shard(toy: Toy, form: Any, group: dist.ProcessGroup | None = None, **options: Any) -> Callable[..., Any]:
    """The toy's encode, sharded over all ranks or over `group`."""
    group = dist.group.WORLD if group is None else group
    return api.shard_over_cp(
        toy.encode, form, group=group, cp_size=group.size(), modules=[toy], alpha=16, **options
    )


def levels_of(output: Any) -> list[Tensor]:
    """Every tensor of an output, in order."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, (tuple, list)):
        return [tensor for part in output for tensor in levels_of(part)]
    return levels_of(output.pooler_output)


def objective(output: Any, *, rank: int | None, ranks: int) -> Tensor:
    """A loss over the rows of one rank's sequence shard, every `ranks`-th of them, or over all rows."""
    total = torch.zeros((), dtype=torch.float64)
    for level in levels_of(output):
        weights = torch.arange(1.0, level.numel() + 1, dtype=torch.float64).sin().view_as(level)
        total = total + ((weights * level) if rank is None else (weights * level)[rank::ranks]).sum()
    return total


def gradients(module: nn.Module, pixels: Tensor) -> dict[str, Tensor | None]:
    """Gradients by name, of trainable parameters and of the pixels."""
    named = {name: p.grad for name, p in module.named_parameters() if p.requires_grad}
    return {**named, "pixels": pixels.grad} if pixels.requires_grad else named


def check_parity(
    rank: int,
    case: Case,
    *,
    prepare: Callable[[Toy, Tensor], None] = lambda toy, pixels: None,
    checkpointed: bool | None = None,
    strided: bool = False,
    **options: Any,
) -> None:
    """Features equal the replicated ones, and so do gradients once summed over the group; no trainable one is None."""
    group = strided_group() if strided else dist.group.WORLD
    ranks, place = group.size(), group.rank()
    toy, form, batch = case()
    batch[form.pixels].requires_grad_(checkpointed is not None)
    prepare(toy, batch[form.pixels])
    twin, twin_batch = copy.deepcopy(toy), {**batch, form.pixels: batch[form.pixels].detach().clone()}
    twin_batch[form.pixels].requires_grad_(batch[form.pixels].requires_grad)
    twin.poison = False
    expected = twin.encode(**twin_batch)

    run = shard(toy, form, group, **options)
    if checkpointed is None:
        output = run(**batch)
    else:
        names = list(batch)
        output = checkpoint(
            lambda *values: tuple(levels_of(run(**dict(zip(names, values))))), *batch.values(), use_reentrant=checkpointed
        )
    assert checkpointed is not None or type(output) is type(expected)
    for ours, theirs in zip(levels_of(output), levels_of(expected), strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad
    assert toy.seen == twin.seen, f"rank {rank} exercised {toy.seen} of {twin.seen}"
    if not levels_of(expected)[0].requires_grad:
        return
    objective(expected, rank=None, ranks=ranks).backward()
    objective(output, rank=place, ranks=ranks).backward()
    owned = gradients(toy, batch[form.pixels])
    for name, theirs in gradients(twin, twin_batch[form.pixels]).items():
        ours = owned[name]
        if theirs is None:
            assert ours is None
            continue
        if name == "pixels" and ours is None:
            ours = torch.zeros_like(batch[form.pixels])
        assert ours is not None, f"rank {rank}: {name} has no gradient"
        dist.all_reduce(ours, group=group)
        torch.testing.assert_close(ours, theirs, msg=lambda m, name=name: f"gradient of {name}: {m}")


def check_idle_gradients(rank: int, case: Case, busy: int) -> None:
    """On ranks from `busy` on, which own nothing, every parameter has a gradient of exactly zero."""
    toy, form, batch = case()
    objective(shard(toy, form, method="count")(**batch), rank=rank, ranks=dist.get_world_size()).backward()
    for name, parameter in toy.named_parameters():
        if name.partition(".")[2].partition(".")[0] in {"image", "video"} - toy.seen:
            continue
        assert parameter.grad is not None, f"{name} has no gradient"
        assert bool(parameter.grad.any()) == (rank < busy), f"{name} on rank {rank}"


def check_shared_buffer(rank: int) -> None:
    """A gradient buffer that autograd gives to two nodes reaches the other one as it was."""
    toy, form, batch = grid((1, 4, 4), (1, 2, 4))()
    rows = shard(toy, form)(**batch)
    leaf = torch.zeros_like(rows, requires_grad=True)
    sibling = leaf * 1  # the gather's backward comes before this node's
    rows = shard(toy, form)(**batch)
    weights = torch.randn_like(rows)
    ((rows + sibling) * weights).sum().backward()
    torch.testing.assert_close(leaf.grad, weights, rtol=0, atol=0)


def strided_group() -> dist.ProcessGroup:
    """This rank's group among ranks {0, 2, ...} and {1, 3, ...}: CP next to TP of size 2."""
    groups = [dist.new_group(list(range(first, dist.get_world_size(), 2))) for first in (0, 1)]
    return groups[dist.get_rank() % 2]


class Collectives(TorchDispatchMode):
    """Records every collective as (name, bytes sent to other ranks)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.calls.append((func._opname, sent_bytes(func._opname, args)))
        return func(*args, **(kwargs or {}))

    def take(self) -> list[tuple[str, int]]:
        """What was recorded since the last call."""
        calls, self.calls = self.calls, []
        return calls


def sent_bytes(name: str, args: Any) -> int:
    """What this rank sends to others in an all-to-all; the size of its own tensor in an all-gather."""
    if name == "alltoall_base_":
        payload, splits = args[1], list(args[4])
        return (sum(splits) - splits[dist.get_rank()]) * payload.element_size()
    if name == "allgather_":
        return args[1][0].numel() * args[1][0].element_size()
    return 0
