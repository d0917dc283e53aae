"""What a caller sets: thresholds, minimum work of a rank, ranks of one sequence shard, modules, names in messages."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from skillgen.runtime import plan, thresholds
from skillgen.runtime.agree import VisionShardingError
from skillgen.runtime.forms import Units
from skillgen.runtime.grid_rows import GridRows
from skillgen.runtime.plan import Run, Segment
from tests.distributed import run_ranks
from tests.runtime import sharding
from tests.runtime.sharding import (
    Collectives,
    check_min_patches,
    check_parity,
    check_same_sequence,
    check_threshold,
    grid,
    images,
)
from tests.runtime.shares import placeholders
from tests.runtime.toys import GridToy, grid_batch

SIX_ROWS = grid((1, 4, 4), (2, 2, 2))  # of three units


@pytest.mark.parametrize(
    "rows, units, few",
    [(0, 0, False), (7, 0, False), (0, 4, False), (7, 4, True), (6, 4, False), (7, 3, False)],
)
def test_a_batch_below_both_thresholds_is_encoded_on_every_rank(rows: int, units: int, few: bool) -> None:
    def on_rank(rank: int) -> None:
        toy, form, batch = SIX_ROWS()
        with Collectives() as seen:
            output = sharding.shard(toy, form, min_rows=rows, min_units=units)(**batch)
        torch.testing.assert_close(output, toy.encode(**batch))
        assert [name for name, _ in seen.take()] == ["allgather_"] + ["alltoall_base_"] * (not few)

    run_ranks(2, on_rank)


def test_thresholds_are_those_of_the_whole_batch() -> None:
    """Each rank's own share is below them."""
    run_ranks(2, check_threshold)


def test_a_rank_that_alone_is_below_the_thresholds_is_known_to_all() -> None:
    def on_rank(rank: int) -> str:
        toy, form, batch = SIX_ROWS()
        other = grid_batch((1, 2, 2))
        with pytest.raises(VisionShardingError, match="the ranks see different batches") as raised:
            sharding.shard(toy, form, min_rows=6, min_units=3)(**(other if rank else batch))
        return str(raised.value)

    for told in run_ranks(2, on_rank, timeout=10):
        assert "3 units, 6 rows" in told and "1 units, 1 rows" in told


def test_a_small_batch_that_fails_on_a_rank_fails_there_after_the_agreement() -> None:
    """The encoder runs on every rank by itself, as it would unsharded: no other rank waits for it."""

    def on_rank(rank: int) -> None:
        toy, form, batch = SIX_ROWS()
        if rank:
            toy.encode = lambda pixel_values, image_grid_thw: 1 // 0
        run = sharding.shard(toy, form, min_rows=100, min_units=100)
        if rank:
            with pytest.raises(ZeroDivisionError):
                run(**batch)
        else:
            run(**batch)
        dist.barrier()

    run_ranks(2, on_rank, timeout=10)


@pytest.mark.parametrize("least", [0, 8, 9, 96])
def test_a_rank_with_units_encodes_at_least_so_many_patches(least: int) -> None:
    run_ranks(4, check_min_patches, least)


FILLS: dict[str, tuple[Units, list[Segment], int, list[str]]] = {
    "enough": (Units((Run(16),), (4,), ("image",), 2, 8), [Segment(0, 0, 1)], 16, []),
    "one more": (Units((Run(16),), (4,), ("image",), 2, 8), [Segment(0, 0, 1)], 17, ["image"]),
    "several": (Units((Run(16),), (4,), ("image",), 2, 8), [Segment(0, 0, 1)], 40, ["image"] * 3),
    "nothing owned": (Units((Run(16),), (4,), ("image",), 2, 8), [], 40, ["image"]),
    "one row": (Units((Run(4),), (1,), ("image",), 2, 8), [Segment(0, 0, 1)], 4, ["image"]),
    "beside another kind": (
        Units((Run(16), Run(4)), (4, 1), ("image", "video"), 2, 8), [Segment(0, 0, 1)], 40, ["video"] + ["image"] * 2
    ),
}  # fmt: skip


@pytest.mark.parametrize("units, share, least, expected", FILLS.values(), ids=FILLS)
def test_placeholders_for_least_work(units: Units, share: list[Segment], least: int, expected: list[str]) -> None:
    assert placeholders(units, share, least) == expected


def test_ranks_of_one_sequence_shard_need_a_frozen_encoder() -> None:
    run_ranks(2, check_same_sequence)


def test_a_module_is_an_encoder() -> None:
    def on_rank(rank: int) -> None:
        toy, batch = GridToy(), grid_batch((1, 4, 4), (2, 2, 2))
        encode: Any = SimpleNamespace(encode=toy)
        run = sharding.shard(encode, toy.form, modules=[toy])
        pixels, sizes = batch.values()
        torch.testing.assert_close(run(pixels, sizes), toy(pixels, sizes))
        torch.testing.assert_close(run(pixels, image_grid_thw=sizes), toy(pixels, sizes))

    run_ranks(2, on_rank)


def read_by_name(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A hook that wants the grid by name and the pixels by position, as its encoder is called."""
    assert kwargs["image_grid_thw"].prod(-1).sum() == len(args[0])


def test_hooks_see_arguments_as_the_caller_gave_them() -> None:
    def on_rank(rank: int) -> None:
        toy, batch = GridToy(), grid_batch((1, 4, 4), (1, 2, 4), (3, 2, 2))
        toy.register_forward_pre_hook(read_by_name, with_kwargs=True)
        pixels, grid_thw = batch.values()
        expected = toy(pixels, image_grid_thw=grid_thw)
        encode: Any = SimpleNamespace(encode=toy)
        run = sharding.shard(encode, GridToy.form, modules=[toy])
        torch.testing.assert_close(run(pixels, image_grid_thw=grid_thw), expected)

    run_ranks(2, on_rank)


def test_parity_of_outputs_with_deepstack_levels() -> None:
    def on_rank(rank: int) -> None:
        for container in ("pooler_deepstack", "pooler_deepstack_tuple"):
            for deepstack in ((), (4,), (4, 2)):
                check_parity(rank, grid((3, 2, 4), (1, 2, 2), container=container, deepstack=deepstack))
        toy, form, batch = grid((1, 4, 4), (1, 2, 2), container="pooler_deepstack", deepstack=(4, 2))()
        with Collectives() as seen:
            output = sharding.shard(toy, form)(**batch)
        assert [name for name, _ in seen.take()] == ["allgather_", "alltoall_base_"]
        assert output.last_hidden_state is None  # of one rank's images only

    run_ranks(2, on_rank)


def test_grids_may_be_lists() -> None:
    def on_rank(rank: int) -> None:
        check_parity(rank, grid((1, 4, 4), (3, 2, 4), (1, 2, 2), listed=True))

    run_ranks(3, on_rank)


def test_items_whose_frames_see_each_other_stay_whole() -> None:
    def on_rank(rank: int) -> None:
        check_parity(rank, grid((6, 4, 4), whole=True))
        check_parity(rank, grid((1, 2, 2), (6, 4, 4), (3, 2, 2), whole=True))

    run_ranks(2, on_rank)


def test_every_message_opens_with_what_it_is_about() -> None:
    def on_rank(rank: int) -> list[str]:
        toy, form, batch = SIX_ROWS()
        other = dataclasses.replace(form, grid="image_grid_thw", merge_size=1) if rank else form
        calls: list[tuple[Any, dict[str, Any]]] = [
            (form, {"cp_size": 4}),
            (form, {"same_sequence": True}),
            (other, {}),
        ]
        told = []
        for given, options in calls:
            with pytest.raises((ValueError, VisionShardingError)) as raised:
                sharding.shard(toy, given, name="vision frame sharding", **options)(**batch)
            told.append(str(raised.value))
        return told

    for told in run_ranks(2, on_rank):
        assert len(told) == 3 and all(message.startswith("vision frame sharding") for message in told), told


def test_a_plan_is_reused_across_recompute() -> None:
    def on_rank(rank: int) -> None:
        toy, form, batch = SIX_ROWS()
        plan._make_plan.cache_clear()
        output = checkpoint(sharding.shard(toy, form), *batch.values(), use_reentrant=False)
        assert plan._make_plan.cache_info()[:2] == (0, 1)  # hits, misses
        output.sum().backward()
        assert plan._make_plan.cache_info()[:2] == (1, 1)

    run_ranks(2, on_rank)


class HostReads(TorchFunctionMode):
    """Records where the host waits for a tensor's values."""

    READS = re.compile("tolist|item|numpy|__(bool|int|float|index|contains)__|cpu|nonzero|is_nonzero|equal|allclose")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.READS.fullmatch(getattr(func, "__name__", "")):
            self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("case", [SIX_ROWS, images((4, 4), (2, 6)), sharding.padded((3, 6), (6, 6))])
def test_the_host_waits_for_the_encoder_once_at_most(case: Any) -> None:
    def on_rank(rank: int) -> None:
        toy, form, batch = case()
        encode, mode = toy.encode, HostReads()

        def encode_and_count(*args: Any, **kwargs: Any) -> Any:
            output = encode(*args, **kwargs)
            mode.names.clear()
            return output

        toy.encode = with_signature_of(encode, encode_and_count)
        with mode:
            output = sharding.shard(toy, form)(**batch)
        assert mode.names == ["tolist"]
        with mode:
            mode.names.clear()
            output.sum().backward()
        assert mode.names == []

    run_ranks(2, on_rank)


def with_signature_of(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper


def test_a_threshold_needs_no_images() -> None:
    nothing = GridRows(merge_size=2).units({"image_grid_thw": []})
    assert nothing.runs == () and thresholds.is_small(nothing, 1, 1) and not thresholds.is_small(nothing, 0, 0)
