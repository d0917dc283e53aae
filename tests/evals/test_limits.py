"""The limits of forked ranks: a hang ends soon after it began, and what computes is not taken for one."""

from __future__ import annotations

import time

import pytest

from tests.distributed import RankError, run_ranks

pytest.importorskip("torch")


def compute(seconds: float) -> None:
    while time.process_time() < seconds:
        pass


def test_ranks_that_compute_have_time() -> None:
    run_ranks(2, lambda rank: compute(time.process_time() + 1.2), timeout=1)


def test_ranks_that_are_late_for_the_first_collective_have_time() -> None:
    assert run_ranks(2, lambda rank: rank, timeout=0.05) == [0, 1]


def test_a_rank_that_waits_does_not() -> None:
    with pytest.raises(RankError, match=r"rank 1: still busy after 0\.5 s") as raised:
        run_ranks(2, lambda rank: time.sleep(60 * rank), timeout=0.5)
    assert "rank 0" not in str(raised.value)


def test_a_rank_that_raises_leaves_its_peers_no_longer_than_the_limit() -> None:
    import torch
    import torch.distributed as dist

    def on_rank(rank: int) -> None:
        if rank:
            raise ZeroDivisionError
        dist.all_reduce(torch.zeros(1))

    with pytest.raises(RankError, match=r"(?s)rank 1: .*ZeroDivisionError"):
        run_ranks(2, lambda rank: on_rank(rank), timeout=1)
