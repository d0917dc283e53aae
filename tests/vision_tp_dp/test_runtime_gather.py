"""Of ranks in a row that hold one gradient, backward takes it from one; where that is the owner, nothing moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from skillgen.runtime import gather
from skillgen.runtime.agree import VisionShardingError
from skillgen.runtime.plan import Run, make_plan
from skillgen.runtime.tp_dp import VisionGroups, encode
from skillgen.runtime.tp_dp.gather import gather_replicated_rows
from tests.distributed import run_ranks
from tests.runtime.sharding import Collectives, grid

RUNS = [Run(4), Run(2, 5), Run(9), Run(1, 3), Run(4, 2)]


def gather_exactly(rank: int, replicas: int, dtype: torch.dtype, runs: list[Run]) -> None:
    """Each rank gives every row a gradient of its own: rank + 1."""
    ranks = dist.get_world_size()
    plan = make_plan(runs, ranks, alpha=4)
    layout = gather.row_layout(plan, [run.patches for run in runs])
    mine = layout.rank_rows[rank]
    local = [torch.full((mine, width), rank + 1.0, dtype=dtype, requires_grad=True) for width in (6, 3)]
    with Collectives() as seen:
        gathered = gather_replicated_rows(local, layout, dist.group.WORLD, replicas, trainable=True)
        assert [name for name, _ in seen.take()] == ["alltoall_base_"]
        torch.autograd.backward(gathered, [torch.full_like(level, rank + 1.0) for level in gathered])
        backward = seen.take()
    peers = range(rank % replicas, ranks, replicas)
    for level in local:
        assert level.grad is not None and level.grad.dtype == dtype
        assert torch.equal(level.grad, torch.full_like(level, sum(peer + 1.0 for peer in peers)))
    sent = sum(layout.rank_rows[peer] for peer in peers if peer != rank) * 9 * dtype.itemsize
    assert backward == ([("alltoall_base_", sent)] if replicas < ranks else [])


@pytest.mark.parametrize("world, replicas", [(4, 1), (4, 2), (4, 4), (6, 2), (6, 3)])
def test_owners_receive_from_ranks_at_their_own_place_alone(world: int, replicas: int) -> None:
    def on_rank(rank: int) -> None:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            gather_exactly(rank, replicas, dtype, RUNS)
        gather_exactly(rank, replicas, torch.float32, RUNS[:1])  # all but one rank own nothing
        dist.barrier()

    run_ranks(world, on_rank)


def test_half_precision_is_summed_in_fp32_over_the_senders() -> None:
    """256 + 1 + 1 rounds to 256 in bfloat16, step by step."""

    def on_rank(rank: int) -> Any:
        plan = make_plan([Run(1)] * 6, 6, alpha=1)
        layout = gather.row_layout(plan, [1] * 6)
        local = torch.zeros(1, 1, dtype=torch.bfloat16, requires_grad=True)
        (rows,) = gather_replicated_rows([local], layout, dist.group.WORLD, 2, trainable=True)
        rows.backward(torch.full_like(rows, [256.0, 512.0, 1.0, 2.0, 1.0, 2.0][rank]))
        assert local.grad is not None
        return local.grad.item()

    assert run_ranks(6, on_rank) == [258.0, 516.0] * 3


def test_a_rank_with_another_number_of_replicas_is_known_to_all() -> None:
    """It would send to other ranks than those that wait for it."""

    def on_rank(rank: int) -> None:
        toy, form, batch = grid((1, 4, 4), (1, 2, 4))()
        world: Any = dist.group.WORLD
        groups = VisionGroups(tp=world, column=world, replicas=world if rank else None)
        run = encode.shard_tower(
            toy.encode,
            groups=groups,
            merge_size=form.merge_size,
            alpha=1,
            modules=[toy],
            pixels=form.pixels,
            grid=form.grid,
        )
        with pytest.raises(VisionShardingError, match="the ranks see different batches"):
            run(**batch)

    run_ranks(2, on_rank)
