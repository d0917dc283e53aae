"""Each rule of tp_dp, broken on purpose, makes the check named for it fail; with the rule in place it passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from skillgen.runtime import api
from skillgen.runtime.tp_dp import GridBlocks, blocks, encode, groups, replicas
from skillgen.runtime.tp_dp import gather as tp_dp_gather
from tests.distributed import RankError, run_ranks
from tests.vision_tp_dp.replicas import check_half, check_norm, check_one_encoder, check_saved, check_start, check_step
from tests.vision_tp_dp.toys import Place, check_padding, check_parity, check_same_work, images

Patch = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[], Any]
sum_replica_gradients = replicas.sum_replica_gradients


def on_ranks(world: int, check: Callable[..., None], *args: Any, **options: Any) -> Check:
    return lambda: run_ranks(world, lambda rank: check(rank, *args, **options), timeout=20)


def sum_instead_of_slice(patch: pytest.MonkeyPatch) -> None:
    """Every rank's gradient is summed, as over CP."""
    patch.setattr(encode.TowerSharding, "gather", api.ShardedEncoder.gather)


def slice_instead_of_sum(patch: pytest.MonkeyPatch) -> None:
    """The gradient is taken from one rank, also over CP."""

    gather_replicated_rows = tp_dp_gather.gather_replicated_rows

    def sliced(features: Any, layout: Any, group: Any, replicas: int, **options: Any) -> Any:
        return gather_replicated_rows(features, layout, group, group.size(), **options)

    patch.setattr(encode, "gather_replicated_rows", sliced)


def senders_in_a_row(patch: pytest.MonkeyPatch) -> None:
    """What is summed are replicas of one CP rank, not ranks at one place of every CP rank."""
    backward = tp_dp_gather._GatherReplicatedRows.backward

    def swapped(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.replicas = ctx.group.size() // ctx.replicas
        return backward(ctx, *grads)

    patch.setattr(tp_dp_gather._GatherReplicatedRows, "backward", staticmethod(swapped))


def no_replica_sum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replicas, "sum_replica_gradients", lambda module, group: None)


def replica_average(patch: pytest.MonkeyPatch) -> None:
    def average(module: torch.nn.Module, group: Any) -> None:
        sum_replica_gradients(module, group)
        for parameter in module.parameters() if group is not None else ():
            grad = getattr(parameter, "main_grad", parameter.grad)
            grad /= group.size()

    patch.setattr(replicas, "sum_replica_gradients", average)


def sum_over_all(patch: pytest.MonkeyPatch) -> None:
    """Over CP too, where megatron-core sums as well."""
    patch.setattr(
        replicas, "sum_replica_gradients", lambda module, group: sum_replica_gradients(module, dist.group.WORLD)
    )


def half_precision_sum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.Tensor, "float", lambda self: self)


def attributes_of_wrappers(patch: pytest.MonkeyPatch) -> None:
    """A wrapper that hands its model's attributes on passes for another model."""

    def by_attribute(finalize: Any, model: Any, *args: Any, **options: Any) -> Any:
        result = finalize(model, *args, **options)
        for module in (module for chunk in model for module in chunk.modules()):
            if getattr(module, "vision_groups", None) is not None:
                sum_replica_gradients(module.vision_model, module.vision_groups.replicas)
        return result

    patch.setattr(replicas, "finalize_and_sum", by_attribute)


def wrappers_not_opened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.nn.Module, "modules", lambda self: iter([self]))


def columns_are_rows(patch: pytest.MonkeyPatch) -> None:
    """Ranks of one vision TP group share out the images."""
    patch.setattr(groups, "dp_columns", lambda world, tp, dp: groups.tp_groups(world, dp))


def rows_are_columns(patch: pytest.MonkeyPatch) -> None:
    """The axes the other way around: vision TP groups are strided, columns in a row."""
    tp_groups, dp_columns = groups.tp_groups, groups.dp_columns

    def strided(world: Any, tp: int) -> Any:
        return tp_groups(world, tp) if tp == len(world) else dp_columns(world, len(world) // tp, tp)

    patch.setattr(groups, "tp_groups", strided)
    patch.setattr(groups, "dp_columns", lambda world, tp, dp: tp_groups(world, dp))


def replicas_are_columns(patch: pytest.MonkeyPatch) -> None:
    """Ranks of other CP ranks pass for replicas."""
    patch.setattr(groups, "replica_groups", lambda world, tp, text_tp: groups.dp_columns(world, tp, len(world) // tp))


def unpack_before_gather(patch: pytest.MonkeyPatch) -> None:
    """Each rank drops its own padding, and then has other rows than the blocks have."""

    def early(*, encode: Any, **options: Any) -> Any:
        def unpacked(hidden_states: torch.Tensor, grid_thw: torch.Tensor) -> Any:
            rows, levels = encode(hidden_states, grid_thw)
            real = hidden_states.view(len(rows), -1).any(1)
            return rows[real], [level[real] for level in levels]

        return tower_sharding(encode=unpacked, **options)

    tower_sharding = encode.TowerSharding
    patch.setattr(encode, "TowerSharding", early)


def unpacked_in_order_of_blocks(patch: pytest.MonkeyPatch) -> None:
    unpack_indices = GridBlocks.unpack_indices
    patch.setattr(GridBlocks, "unpack_indices", lambda self, call: unpack_indices(self, call).sort().values)


def blocks_that_do_not_divide(patch: pytest.MonkeyPatch) -> None:
    pack_blocks = blocks.pack_blocks
    patch.setattr(blocks, "pack_blocks", lambda runs, room, multiple: pack_blocks(runs, room))


def padding_in_an_image(patch: pytest.MonkeyPatch) -> None:
    """Free space is part of the image before it."""
    take = GridBlocks.take

    def joined(self: GridBlocks, call: Any, share: Any, placeholders: Any) -> Any:
        taken, grid = take(self, call, share, placeholders), []
        sizes = taken[self.grid].prod(1).tolist()
        for (frames, height, width), pixels in zip(
            taken[self.grid].tolist(), taken[self.pixels].split(sizes), strict=True
        ):
            if pixels.isfinite().all() and pixels.any():
                grid.append([frames, height, width])
            else:  # of the height of all images here
                grid[-1:] = [[frames, height, width + sum(row[2] for row in grid[-1:])]]
        return {**taken, self.grid: taken[self.grid].new_tensor(grid)}

    patch.setattr(GridBlocks, "take", joined)


def no_broadcast(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replicas, "broadcast_replicas", lambda module, group: None)


def no_broadcast_of_buffers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.nn.Module, "buffers", lambda self: iter(()))


def all_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replicas, "mark_replicas", lambda module, group: None)


def all_main(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replicas, "offset_replica_ids", lambda state, group, tp_size: None)


def offset_by_one(patch: pytest.MonkeyPatch) -> None:
    """A replica's number is that of a vision TP rank."""
    offset_replica_ids = replicas.offset_replica_ids
    patch.setattr(replicas, "offset_replica_ids", lambda state, group, tp_size: offset_replica_ids(state, group, 1))


SEVEN, EQUAL, FLAT = images(7), [(1, 4, 4)] * 2, [(1, 2, 6), (1, 2, 2)]
TP, BOTH = Place(4, 1), Place(2, 2)  # text TP alone, and next to CP
MUTANTS: list[tuple[Patch, Check]] = [
    (sum_instead_of_slice, on_ranks(4, check_parity, TP, 2, SEVEN)),
    (sum_instead_of_slice, on_ranks(4, check_parity, BOTH, 1, SEVEN)),
    (slice_instead_of_sum, on_ranks(4, check_parity, BOTH, 1, SEVEN)),
    (senders_in_a_row, on_ranks(4, check_parity, TP, 2, SEVEN)),
    (senders_in_a_row, on_ranks(8, check_parity, Place(4, 2), 1, SEVEN)),
    (no_replica_sum, on_ranks(4, check_parity, TP, 2, SEVEN)),
    (no_replica_sum, on_ranks(4, check_step, BOTH, 1)),
    (replica_average, on_ranks(4, check_parity, TP, 2, SEVEN)),
    (replica_average, on_ranks(4, check_step, TP, 1)),
    (sum_over_all, on_ranks(4, check_parity, BOTH, 1, SEVEN)),
    (half_precision_sum, on_ranks(4, check_half)),
    (attributes_of_wrappers, on_ranks(4, check_step, TP, 2)),
    (wrappers_not_opened, on_ranks(4, check_step, TP, 2)),
    (columns_are_rows, on_ranks(4, check_parity, TP, 2, EQUAL)),
    (rows_are_columns, on_ranks(4, check_parity, TP, 2, EQUAL)),
    (replicas_are_columns, on_ranks(4, check_parity, BOTH, 1, SEVEN)),
    (unpack_before_gather, on_ranks(4, check_parity, TP, 2, SEVEN, block_patches=64)),
    (unpacked_in_order_of_blocks, on_ranks(4, check_parity, TP, 2, SEVEN, block_patches=64)),
    (blocks_that_do_not_divide, on_ranks(4, check_same_work, TP, 1, [5])),
    (padding_in_an_image, on_ranks(4, check_padding, TP, 2, FLAT)),
    (no_broadcast, on_ranks(4, check_start, TP, 2)),
    (no_broadcast, on_ranks(4, check_one_encoder, TP)),
    (no_broadcast_of_buffers, on_ranks(4, check_start, TP, 2)),
    (all_counted, on_ranks(4, check_norm, TP, 2)),
    (all_main, on_ranks(4, check_saved, TP, 2)),
    (offset_by_one, on_ranks(4, check_saved, TP, 2)),
]


@pytest.mark.parametrize("mutate, check", MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_a_broken_rule_is_caught(mutate: Patch, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    check()
    mutate(monkeypatch)
    with pytest.raises((AssertionError, RankError)):
        check()
