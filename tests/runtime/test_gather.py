"""Rows are gathered in one collective each way, in order, and gradients are summed into their owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from skillgen.runtime import gather
from skillgen.runtime.plan import Plan, Segment, make_plan
from tests.distributed import run_ranks
from tests.runtime import sharding
from tests.runtime.sharding import Collectives, grid, images, packed


@st.composite
def plans(draw: Any) -> tuple[Plan, list[int]]:
    """Any plan, and rows per unit of each run."""
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    ranks = draw(st.integers(1, 5))
    shares: list[list[Segment]] = [[] for _ in range(ranks)]
    for run, count in enumerate(counts):
        for unit in range(count):
            shares[draw(st.integers(0, ranks - 1))].append(Segment(run, unit, 1))
    rows = draw(st.lists(st.integers(0, 4), min_size=len(counts), max_size=len(counts)))
    return Plan(tuple(map(tuple, shares)), (0,) * ranks), rows


@settings(deadline=None, max_examples=100)
@given(plans())
def test_rows_laid_out_and_restored(drawn: tuple[Plan, list[int]]) -> None:
    plan, rows = drawn
    layout = gather.row_layout(plan, rows)
    names = {
        (s.run, s.start): torch.full((rows[s.run], 2), 100.0 * s.run + s.start) for share in plan.shares for s in share
    }
    original = torch.cat([names[unit] for unit in sorted(names)])
    by_rank = [[names[s.run, s.start] for s in share] for share in plan.shares]
    assert layout.rank_rows == [sum(map(len, pieces)) for pieces in by_rank]
    pieces = [piece for mine in by_rank for piece in mine]
    assert torch.equal(torch.cat(gather.restore_order(pieces, layout.order)), original)
    back = gather.to_rank_major(original, layout)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(back, pieces, strict=True))


def test_half_precision_is_summed_in_fp32() -> None:
    for dtype, large in ((torch.bfloat16, 256.0), (torch.float16, 2048.0)):
        contributions = torch.tensor([[large], [1.0], [1.0], [2.0]], dtype=dtype)
        assert gather.sum_over_ranks(contributions).tolist() == [large + 4]  # one by one they would round away
        assert gather.sum_over_ranks(contributions).dtype == dtype


def features_of(runs: Sequence[tuple[int, int]], widths: Sequence[int], dtype: torch.dtype) -> list[torch.Tensor]:
    """Numbered rows of a batch of (rows, units) runs; small integers are exact in every dtype."""
    total = sum(rows * units for rows, units in runs)
    return [(torch.arange(total * width) % 63).view(total, width).to(dtype) for width in widths]


def own(level: torch.Tensor, plan: Plan, runs: Sequence[tuple[int, int]], rank: int) -> torch.Tensor:
    starts = [sum(rows * units for rows, units in runs[:i]) for i in range(len(runs))]
    pieces = [
        level[starts[s.run] + s.start * runs[s.run][0] : starts[s.run] + (s.start + s.count) * runs[s.run][0]]
        for s in plan.shares[rank]
    ]
    return torch.cat([level[:0], *pieces])


def gather_exactly(rank: int, dtype: torch.dtype, widths: Sequence[int], runs: Sequence[tuple[int, int]]) -> None:
    ranks = dist.get_world_size()
    plan = make_plan([(rows, units) for rows, units in runs], ranks, alpha=4)
    layout = gather.row_layout(plan, [rows for rows, _ in runs])
    whole = features_of(runs, widths, dtype)
    local = [own(level, plan, runs, rank).requires_grad_() for level in whole]
    with Collectives() as seen:
        gathered = gather.gather_rows(local, layout, dist.group.WORLD, trainable=True)
        forward = seen.take()
        for level, expected in zip(gathered, whole, strict=True):
            assert torch.equal(level, expected) and level.dtype == dtype
        weights = [torch.full_like(level, rank + 1.0) for level in gathered]
        torch.autograd.backward(gathered, weights)
        backward = seen.take()
    for level in local:
        assert torch.equal(level.grad, torch.full_like(level, ranks * (ranks + 1) / 2)) and level.grad.dtype == dtype
    sizes = [(own_rows * (ranks - 1), sum(layout.rank_rows) - own_rows) for own_rows in layout.rank_rows]
    row = sum(widths) * dtype.itemsize
    assert forward == [("alltoall_base_", sizes[rank][0] * row)]  # no padding: own rows to each other rank
    assert backward == [("alltoall_base_", sizes[rank][1] * row)]


RUNS = {
    "one rank owns all": [(4, 1)],
    "fewer than ranks": [(4, 1), (3, 1)],
    "a video": [(2, 9)],
    "mixed": [(4, 1), (2, 5), (9, 1), (1, 3), (4, 2)],
}


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_one_collective_each_way_moves_every_row_once(runs: Sequence[tuple[int, int]]) -> None:
    def on_rank(rank: int) -> None:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            gather_exactly(rank, dtype, (6,), runs)
            gather_exactly(rank, dtype, (6, 3, 1), runs)

    for world in (2, 4):
        run_ranks(world, on_rank)


def test_collectives_of_a_sharded_call() -> None:
    """The agreement costs one all-gather of 16 bytes; nothing else is exchanged."""

    def on_rank(rank: int) -> None:
        for case in (
            grid((1, 4, 4), (3, 2, 4), container="deepstack", deepstack=(4, 2)),
            packed((3, 4, 4), (1, 3, 5)),
        ):
            toy, form, batch = case()
            with Collectives() as seen:
                output = sharding.shard(toy, form)(**batch)
                forward = seen.take()
                sharding.objective(output, rank=rank, ranks=2).backward()
                backward = seen.take()
            assert forward[:-1] == [("allgather_", 16)]
            assert [name for name, _ in forward[-1:] + backward] == ["alltoall_base_"] * 2

    run_ranks(2, on_rank)


@pytest.mark.parametrize("reentrant", [False, True])
def test_collectives_of_a_checkpointed_call(reentrant: bool) -> None:
    """The recompute repeats the forward's on every rank, also on one that owns nothing."""

    def on_rank(rank: int) -> None:
        toy, form, batch = images((4, 4))()
        run = sharding.shard(toy, form)
        batch["pixel_values"].requires_grad_()
        with Collectives() as seen:
            output = checkpoint(run, *batch.values(), use_reentrant=reentrant)
            assert [name for name, _ in seen.take()] == ["allgather_", "alltoall_base_"]
            sharding.objective(output, rank=rank, ranks=3).backward()
            assert [name for name, _ in seen.take()] == ["allgather_", "alltoall_base_", "alltoall_base_"]

    run_ranks(3, on_rank)


def test_no_grad_and_frozen_have_no_backward() -> None:
    def on_rank(rank: int) -> None:
        toy, form, batch = images((4, 4), (2, 6), (4, 2))()
        expected = toy.encode(**batch)
        with torch.no_grad():
            quiet = sharding.shard(toy, form)(**batch)
        with torch.inference_mode():
            torch.testing.assert_close(sharding.shard(toy, form)(**batch), expected)
        frozen = sharding.shard(toy.requires_grad_(False), form)(**batch)
        for output in (quiet, frozen):
            torch.testing.assert_close(output, expected)
            assert not output.requires_grad

    run_ranks(2, on_rank)


def test_gradients_are_not_reduced_in_a_buffer_that_others_read() -> None:
    run_ranks(2, sharding.check_shared_buffer)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_near_to_fp32_as_the_replicated_encoder(dtype: torch.dtype) -> None:
    def parameter_gradients(rank: int, to: torch.dtype, sharded: bool) -> tuple[torch.Tensor, torch.Tensor]:
        toy, form, batch = grid((1, 4, 4), (3, 2, 4), (1, 2, 2))()
        toy.to(to)
        batch["pixel_values"] = batch["pixel_values"].to(dtype).to(to)
        rows = sharding.shard(toy, form)(**batch) if sharded else toy.encode(**batch)
        assert rows.dtype == to
        sharding.objective(rows, rank=rank if sharded else None, ranks=4).backward()
        grad = torch.cat([p.grad.flatten() for p in toy.parameters() if p.grad is not None]).float()
        if sharded:
            dist.all_reduce(grad)
        return rows.float(), grad

    def on_rank(rank: int) -> None:
        reference = parameter_gradients(rank, torch.float32, False)
        plain, ours = parameter_gradients(rank, dtype, False), parameter_gradients(rank, dtype, True)
        for exact, replicated, gathered in zip(reference, plain, ours, strict=True):
            assert (gathered - exact).abs().max() <= 2 * (replicated - exact).abs().max() + 1e-6

    run_ranks(4, on_rank)


def test_levels_that_no_loss_reads_get_zero_gradients() -> None:
    def on_rank(rank: int) -> None:
        toy, form, batch = grid((1, 4, 4), (1, 2, 2), container="deepstack", deepstack=(4,))()
        rows, _ = sharding.shard(toy, form)(**batch)
        rows.sum().backward()
        assert toy.projector.weight.grad.any()
        assert not toy.deep[0].weight.grad.any()

    run_ranks(2, on_rank)


def test_features_behave_like_those_of_an_encoder() -> None:
    """They may be changed in place, each level keeps its dtype, and a wrong second derivative is never given."""

    def on_rank(rank: int) -> None:
        toy, form, batch = grid((1, 4, 4), (1, 2, 2))()
        rows = sharding.shard(toy, form)(**batch)
        rows += 1
        first = torch.autograd.grad(rows.pow(2).sum(), toy.projector.weight, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            first[0].sum().backward()

        plan = make_plan([(4, 1), (4, 1)], 2, alpha=4)
        layout = gather.row_layout(plan, [4, 4])
        local = [torch.ones(4, 2, dtype=dtype, requires_grad=True) for dtype in (torch.bfloat16, torch.float32)]
        levels = gather.gather_rows(local, layout, dist.group.WORLD, trainable=True)
        torch.autograd.backward(levels, [torch.ones_like(level) for level in levels])
        for level, own_level in zip(levels, local, strict=True):
            assert level.dtype == own_level.dtype == own_level.grad.dtype

    run_ranks(2, on_rank)


def test_a_compiled_caller() -> None:
    def on_rank(rank: int) -> None:
        toy, form, batch = images((4, 4), (2, 6))()
        rows = torch.compile(sharding.shard(toy, form), backend="eager")(**batch)
        torch.testing.assert_close(rows, toy.encode(**batch))

    run_ranks(1, on_rank)
