"""Checks of the sharding runtime that run on every rank of a group; plain functions, shared with the mutants."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._dynamo  # checkpoint and dispatch modes need it, assert_close the next one: once here, not in every rank
import torch.distributed as dist
import torch.distributed.tensor
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from skillgen.evals.kernel import rules
from skillgen.runtime import api
from skillgen.runtime import plan as plan_module
from skillgen.runtime.grid_items import GridItems
from skillgen.runtime.packed_patches import PackedPatches
from skillgen.runtime.plan import make_plan
from skillgen.runtime.thresholds import ThresholdShardedEncoder
from tests.runtime.collectives import Collectives as Collectives
from tests.runtime.tensor_toys import PaddedToy, TensorToy, padded_batch, tensor_batch
from tests.runtime.toys import (
    MERGE,
    PATCH,
    GridToy,
    ImageToy,
    PackedToy,
    Toy,
    grid_batch,
    image_batch,
    packed_batch,
)

Case = Callable[[], tuple[Toy, Any, dict[str, Any]]]


def images(*grids: tuple[int, int], sizes: bool = True, **options: Any) -> Case:
    """A case of the form ImageBatch."""
    return lambda: (ImageToy(**options), ImageToy.form, image_batch(*grids, sizes=sizes))


def grid(*grids: tuple[int, int, int], **options: Any) -> Case:
    """A case of the form GridRows; with `listed` the grid is a list."""
    listed = options.pop("listed", False)
    form = GridItems(merge_size=MERGE) if options.get("whole", False) else GridToy.form

    def make() -> tuple[Toy, Any, dict[str, Any]]:
        batch = grid_batch(*grids)
        return GridToy(**options), form, {**batch, "image_grid_thw": [*map(list, grids)]} if listed else batch

    return make


def tensors(count: int, **options: Any) -> Case:
    """A case of the form TensorBatch."""

    def make() -> tuple[Toy, Any, dict[str, Any]]:
        toy = TensorToy(container="stacked", **options)
        return toy, toy.form(), tensor_batch(count)

    return make


def padded(*grids: tuple[int, int], length: int = 0, **options: Any) -> Case:
    """A case of the form PaddedPatches."""
    return lambda: (PaddedToy(**options), PaddedToy.form, padded_batch(*grids, length=length))


def packed(*items: tuple[int, int, int], padded: bool = False, tubelet: int = 2, **options: Any) -> Case:
    """A case of the form PackedPatches."""
    form = PackedPatches(patch_size=PATCH, tubelet=tubelet)
    return lambda: (PackedToy(tubelet=tubelet, **options), form, packed_batch(*items, padded=padded))


def static(count: int, height: int, width: int) -> Case:
    """Images of one size without sizes, in the form PackedPatches."""

    def make() -> tuple[Toy, Any, dict[str, Any]]:
        batch: dict[str, Any] = {"images": image_batch(*[(height, width)] * count)["pixel_values"]}
        return PackedToy(), PackedPatches(patch_size=PATCH), batch

    return make


def shard(toy: Toy, form: Any, group: dist.ProcessGroup | None = None, **options: Any) -> Callable[..., Any]:
    """The toy's encode, sharded over all ranks or over `group`; with thresholds, by the class that has them."""
    group = dist.group.WORLD if group is None else group
    kind = ThresholdShardedEncoder if options else api.ShardedEncoder
    given = {"encode": toy.encode, "form": form, "group": group, "cp_size": group.size(), "modules": [toy]}
    return kind(**{**given, "alpha": 16, "language_model": None, "name": "vision_dp_over_cp", **options})


@contextmanager
def planned(method: str) -> Iterator[None]:
    """Plans are made by `method`, in this process."""
    before = api.make_plan
    api.make_plan = rules.planner(plan_module, method)
    try:
        yield
    finally:
        api.make_plan = before


def levels_of(output: Any) -> list[Tensor]:
    """Every tensor of an output, in order."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, (tuple, list)):
        return [tensor for part in output for tensor in levels_of(part)]
    return [*levels_of(output.pooler_output), *levels_of(getattr(output, "deepstack_features", ()))]


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
            lambda *values: tuple(levels_of(run(**dict(zip(names, values, strict=True))))),
            *batch.values(),
            use_reentrant=checkpointed,
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
    with planned("count"):
        objective(shard(toy, form)(**batch), rank=rank, ranks=dist.get_world_size()).backward()
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


def check_threshold(rank: int) -> None:
    """A batch at the thresholds is sharded, whatever a rank's own share is."""
    toy, form, batch = grid((1, 4, 4), (1, 2, 2), (1, 2, 2))()
    with Collectives() as seen:
        output = shard(toy, form, min_rows=6, min_units=3)(**batch)
    assert [name for name, _ in seen.take()] == ["allgather_", "alltoall_base_"]
    torch.testing.assert_close(output, toy.encode(**batch))


def check_min_patches(rank: int, least: int) -> None:
    """A rank that owns units encodes `least` patches, and what is added stays on it."""
    check_parity(rank, grid((1, 4, 4), (2, 2, 2), poison=True), min_patches=least)
    toy, form, batch = grid((1, 4, 4), (2, 2, 2))()
    encode, lengths = toy.encode, []

    def measure(pixel_values: Tensor, image_grid_thw: Tensor) -> Any:
        lengths.append(len(pixel_values))
        return encode(pixel_values, image_grid_thw)

    toy.encode = measure
    shard(toy, form, min_patches=least)(**batch)
    owned = [
        sum(form.units(batch).runs[s.run].patches * s.count for s in share)
        for share in make_plan(form.units(batch).runs, dist.get_world_size(), alpha=16).shares
    ]
    assert lengths[0] >= (max(least, owned[rank]) if owned[rank] else 1)
    assert lengths[0] <= max(owned[rank], least) + 2 * MERGE**2


def check_same_sequence(rank: int) -> None:
    """Refused where a gradient would be summed over ranks that hold the same sequence shard, before any collective."""
    toy, form, batch = grid((1, 4, 4), (2, 2, 2))()
    run = shard(toy, form, same_sequence=True)
    with Collectives() as seen:
        refused = False
        try:
            run(**batch)
        except ValueError as error:
            refused = "the encoder must be frozen" in str(error)
        assert refused and not seen.take()
    with torch.no_grad():
        torch.testing.assert_close(run(**batch), toy.encode(**batch))
    toy.requires_grad_(False)
    torch.testing.assert_close(run(**batch), toy.encode(**batch))


def strided_group() -> dist.ProcessGroup:
    """This rank's group among ranks {0, 2, ...} and {1, 3, ...}: CP next to TP of size 2."""
    groups = [dist.new_group(list(range(first, dist.get_world_size(), 2))) for first in (0, 1)]
    return groups[dist.get_rank() % 2]


class annotated:
    """Names the case in what it raises."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Iterator[Any]) -> None:
        if error is not None:
            error.add_note(f"case: {self.name}")
