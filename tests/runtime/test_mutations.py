"""Each rule of the runtime, broken on purpose, makes the check named for it fail; with the rule in place it passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from skillgen.runtime import api, forms, gather, packed_patches, thresholds
from skillgen.runtime.agree import VisionShardingError
from skillgen.runtime.grid_items import GridItems
from skillgen.runtime.grid_rows import GridRows
from skillgen.runtime.packed_patches import PackedPatches
from skillgen.runtime.padded_patches import PaddedPatches
from skillgen.runtime.plan import Segment, make_plan
from skillgen.runtime.tensor_batch import TensorBatch
from skillgen.runtime.thresholds import ThresholdShardedEncoder
from tests.distributed import RankError, run_ranks
from tests.runtime import sharding
from tests.runtime.sharding import (
    check_min_patches,
    check_parity,
    check_same_sequence,
    check_shared_buffer,
    check_threshold,
    grid,
    images,
    packed,
    padded,
    tensors,
)
from tests.runtime.shares import check_tubelets
from tests.runtime.toys import Toy, packed_batch, packed_params

Patch = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[], Any]


def on_ranks(world: int, check: Callable[..., None], *args: Any, **options: Any) -> Check:
    return lambda: run_ranks(world, lambda rank: check(rank, *args, **options), timeout=10)


def no_reduce(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gather, "sum_over_ranks", lambda contributions: contributions[0])


def half_precision_sum(patch: pytest.MonkeyPatch) -> None:
    def one_by_one(contributions: torch.Tensor) -> torch.Tensor:
        total = contributions[0].clone()
        for contribution in contributions[1:]:
            total += contribution
        return total

    patch.setattr(gather, "sum_over_ranks", one_by_one)


def check_half_precision_sum() -> None:
    contributions = torch.tensor([[256.0], [1.0], [1.0], [2.0]], dtype=torch.bfloat16)
    assert gather.sum_over_ranks(contributions).tolist() == [260.0]


def order_of_ranks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gather, "restore_order", lambda pieces, order: list(pieces))


def gradient_in_order_of_ranks(patch: pytest.MonkeyPatch) -> None:
    def straight(grad: torch.Tensor, layout: Any) -> list[torch.Tensor]:
        return list(grad.split([rows for pieces in layout.piece_rows for rows in pieces]))

    patch.setattr(gather, "to_rank_major", straight)


def tail_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(api, "own_rows", lambda levels, rows, surplus: [level[len(level) - rows :] for level in levels])


def placeholder_rows_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(api, "own_rows", lambda levels, rows, surplus: levels)


def units_of_frames(patch: pytest.MonkeyPatch) -> None:
    """A frame is a unit of a video, so that a tubelet may be cut."""
    units, take = PackedPatches.units, PackedPatches.take

    def frames(self: PackedPatches, call: Any) -> forms.Units:
        whole = units(self, call)
        counts = call["num_frames"].tolist()
        return whole._replace(
            runs=tuple(run._replace(count=count) for run, count in zip(whole.runs, counts, strict=True))
        )

    def take_frames(self: PackedPatches, call: Any, share: Any, fill: Any) -> Any:
        narrow = PackedPatches(patch_size=self.patch_size)
        first = [sum(call["num_frames"].tolist()[:run]) for run in range(len(call["num_frames"]))]
        single = [Segment(first[s.run] + s.start + i, 0, 1) for s in share for i in range(s.count)]
        taken = take(narrow, call, single, []) if share else take(self, call, share, fill)
        if share:
            taken["num_frames"] = torch.tensor([s.count for s in share])
        return taken

    patch.setattr(PackedPatches, "units", frames)
    patch.setattr(PackedPatches, "take", take_frames)


def lone_frame_as_it_is(patch: pytest.MonkeyPatch) -> None:
    """A last frame left over is handed on alone, as megatron-core does."""
    take = PackedPatches.take

    def alone(self: PackedPatches, call: Any, share: Any, fill: Any) -> Any:
        taken = take(self, call, share, fill)
        total = call["num_frames"].tolist()
        frames, kept = 0, []
        counts = taken["num_frames"].clone()
        for place, segment in enumerate(share):
            end = min((segment.start + segment.count) * self.tubelet, total[segment.run])
            real = end - segment.start * self.tubelet
            kept += range(frames, frames + real)
            frames += int(counts[place])
            counts[place] = real
        kept += range(frames, len(taken["imgs_sizes"]))
        lengths = taken["imgs_sizes"].prod(1).div(self.patch_size**2).int().tolist()
        pieces = taken["images"].split(lengths, dim=1)
        params = packed_params([lengths[i] for i in kept])
        pixels = torch.cat([pieces[i] for i in kept], dim=1)
        described = {"num_frames": counts, "imgs_sizes": taken["imgs_sizes"][kept], "vision_packed_seq_params": params}
        return {**taken, **described, "images": pixels}

    patch.setattr(PackedPatches, "take", alone)


def one_kind_of_placeholder(patch: pytest.MonkeyPatch) -> None:
    placeholders = api.ShardedEncoder.placeholders

    def one(self: api.ShardedEncoder, units: forms.Units, share: Any) -> list[str]:
        return [] if share else placeholders(self, units, share)[:1]

    patch.setattr(api.ShardedEncoder, "placeholders", one)


def one_row_alone(patch: pytest.MonkeyPatch) -> None:
    placeholders = api.ShardedEncoder.placeholders

    def none(self: api.ShardedEncoder, units: forms.Units, share: Any) -> list[str]:
        return [] if share else placeholders(self, units, share)

    patch.setattr(api.ShardedEncoder, "placeholders", none)


def reduce_in_place(patch: pytest.MonkeyPatch) -> None:
    backward = gather._GatherRows.backward

    def in_place(ctx: Any, *grads: torch.Tensor) -> Any:
        for grad in grads:
            dist.all_reduce(grad, group=ctx.group)
        return backward(ctx, *(grad / ctx.group.size() for grad in grads))

    patch.setattr(gather._GatherRows, "backward", staticmethod(in_place))


def trainable_by_local_tensor(patch: pytest.MonkeyPatch) -> None:
    def local(features: Any, layout: Any, group: Any, *, trainable: bool) -> Any:
        return gather.gather_rows(features, layout, group, trainable=any(level.requires_grad for level in features))

    patch.setattr(api, "gather_rows", local)


def bounds_of_the_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(packed_patches, "_packed_bounds", lambda params, lengths: params)


def bounds_in_the_callers_object(patch: pytest.MonkeyPatch) -> None:
    packed_bounds = packed_patches._packed_bounds

    def changed(params: Any, lengths: Any) -> Any:
        vars(params).update(vars(packed_bounds(params, lengths)))
        return params

    patch.setattr(packed_patches, "_packed_bounds", changed)


def check_caller_keeps_bounds() -> None:
    batch = packed_batch((1, 2, 2), (1, 4, 4))
    PackedPatches(patch_size=2).take(batch, [Segment(1, 0, 1)], [])
    assert batch["vision_packed_seq_params"].cu_seqlens_q.tolist() == [0, 4, 20]


def no_agreement(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(api, "agree", lambda *args: None)


def check_agreement(rank: int) -> None:
    toy, form, batch = images((4, 4), (4, 4))()
    toy.requires_grad_(rank == 0)  # the forward alone would not tell
    with pytest.raises(VisionShardingError):
        sharding.shard(toy, form)(**batch)


def input_only(toy: Toy, pixels: torch.Tensor) -> None:
    toy.requires_grad_(False)
    pixels.requires_grad_(True)


def threshold_of_the_share(patch: pytest.MonkeyPatch) -> None:
    """A rank decides from what it would own."""
    is_small = thresholds.is_small

    def of_share(units: forms.Units, min_rows: int, min_units: int) -> bool:
        share = make_plan(units.runs, dist.get_world_size(), alpha=16).shares[dist.get_rank()]
        runs = tuple(units.runs[segment.run]._replace(count=segment.count) for segment in share)
        rows = tuple(units.rows[segment.run] for segment in share)
        return is_small(units._replace(runs=runs, rows=rows), min_rows, min_units)

    patch.setattr(thresholds, "is_small", of_share)


def same_sequence_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThresholdShardedEncoder, "__call__", api.ShardedEncoder.__call__)


def whole_items_cut(patch: pytest.MonkeyPatch) -> None:
    """The frames of an item go to several ranks although they see each other."""
    for name in ("units", "take"):
        patch.setattr(GridItems, name, getattr(GridRows, name))


def least_work_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThresholdShardedEncoder, "placeholders", api.ShardedEncoder.placeholders)


def short_group_beside_zeros(patch: pytest.MonkeyPatch) -> None:
    """A last short group is filled up by the encoder, with what comes after it: a placeholder's frames."""
    take = TensorBatch.take

    def short(self: TensorBatch, call: Any, share: Any, fill: Any) -> Any:
        taken = take(self, call, share, fill)
        real = sum(min((s.start + s.count) * self.group, len(call[self.pixels])) - s.start * self.group for s in share)
        blank = taken[self.pixels][len(taken[self.pixels]) - len(fill) * self.group :]
        return {**taken, self.pixels: torch.cat([taken[self.pixels][:real], blank])}

    patch.setattr(TensorBatch, "take", short)


def padding_counted(patch: pytest.MonkeyPatch) -> None:
    """The rows of a padded image are taken from its length."""
    units = PaddedPatches.units

    def by_length(self: PaddedPatches, call: Any) -> forms.Units:
        found = units(self, call)
        return found._replace(rows=tuple(run.patches // self.pooling**2 for run in found.runs))

    patch.setattr(PaddedPatches, "units", by_length)


MIXED = grid((1, 2, 2), (3, 2, 4), (1, 4, 4), (1, 8, 2))
VIDEOS = packed((3, 4, 4), (1, 3, 5))
MUTANTS: list[tuple[Patch, Check]] = [
    (no_reduce, on_ranks(2, check_parity, MIXED)),
    (half_precision_sum, check_half_precision_sum),
    (order_of_ranks, on_ranks(2, check_parity, MIXED)),
    (gradient_in_order_of_ranks, on_ranks(2, check_parity, MIXED)),
    (tail_rows, on_ranks(2, check_parity, images((2, 2), (2, 6)))),
    (placeholder_rows_stay, on_ranks(2, check_parity, images((4, 4), poison=True))),
    (units_of_frames, lambda: check_tubelets([6], 2, 4)),
    (lone_frame_as_it_is, lambda: check_tubelets([3], 2, 2)),
    (lone_frame_as_it_is, on_ranks(2, check_parity, packed((3, 4, 4)))),
    (one_kind_of_placeholder, on_ranks(2, check_parity, VIDEOS)),
    (one_row_alone, on_ranks(2, check_parity, images((4, 4), (2, 2), squeeze=True, container="tuple"))),
    (reduce_in_place, on_ranks(2, check_shared_buffer)),
    (trainable_by_local_tensor, on_ranks(2, check_parity, images((4, 4)), prepare=input_only)),
    (bounds_of_the_batch, on_ranks(2, check_parity, VIDEOS)),
    (bounds_in_the_callers_object, check_caller_keeps_bounds),
    (no_agreement, on_ranks(2, check_agreement)),
    (threshold_of_the_share, on_ranks(2, check_threshold)),
    (same_sequence_unchecked, on_ranks(2, check_same_sequence)),
    (whole_items_cut, on_ranks(2, check_parity, grid((6, 4, 4), whole=True))),
    (placeholder_rows_stay, on_ranks(2, check_min_patches, 96)),
    (tail_rows, on_ranks(2, check_min_patches, 96)),
    (least_work_left_out, on_ranks(2, check_min_patches, 96)),
    (short_group_beside_zeros, on_ranks(2, check_parity, tensors(5, tubelet=3), min_patches=96)),
    (padding_counted, on_ranks(2, check_parity, padded((3, 6), (6, 6)))),
]


@pytest.mark.parametrize("mutate, check", MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_a_broken_rule_is_caught(mutate: Patch, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    check()
    mutate(monkeypatch)
    with pytest.raises((AssertionError, RankError)):
        check()
