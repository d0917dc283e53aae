"""Replicas start equal, sum their gradients once a step, are counted once in the norm, and saved once."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from skillgen.runtime.tp_dp import replicas
from tests.distributed import run_ranks
from tests.runtime.sharding import Collectives
from tests.vision_tp_dp.replicas import (
    Model,
    Wrapper,
    check_half,
    check_norm,
    check_one_encoder,
    check_saved,
    check_start,
    check_step,
    parameters,
)
from tests.vision_tp_dp.toys import Place

LAYOUTS = [(Place(4, 1), 1), (Place(4, 1), 2), (Place(4, 1), 4), (Place(2, 2), 1), (Place(2, 2), 2), (Place(1, 4), 1)]


@pytest.mark.parametrize("check", [check_start, check_norm, check_saved, check_step])
def test_at_every_layout(check: Any) -> None:
    def on_rank(rank: int) -> None:
        for place, tp in LAYOUTS:
            try:
                check(rank, place, tp)
            except Exception as error:
                error.add_note(f"{place}, vision TP {tp}")
                raise

    run_ranks(4, on_rank)


@pytest.mark.parametrize("check", [check_start, check_norm, check_saved, check_step])
def test_where_tp_replicas_and_cp_are_all_there(check: Any) -> None:
    run_ranks(8, check, Place(4, 2), 2)


def test_plain_gradients() -> None:
    run_ranks(4, check_step, Place(4, 1), 2, False)


def test_images_are_encoded_by_the_same_weights_on_every_rank() -> None:
    run_ranks(4, check_one_encoder, Place(4, 1))


def test_gradients_are_summed_by_dtype_in_few_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_rank(rank: int) -> list[str]:
        made = [torch.full((3, 2), rank + 1.0), torch.full((2, 2), 10.0 * rank).T, torch.full((), rank * 1.0)]
        module = parameters(*made, torch.full((5,), rank + 1.0, dtype=torch.bfloat16))
        frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        frozen.grad = torch.full((2,), 7.0)
        module.register_parameter("frozen", frozen)
        module.register_parameter("unused", nn.Parameter(torch.ones(2)))
        with Collectives() as seen:
            replicas.sum_replica_gradients(module, dist.group.WORLD)
        assert made[0].tolist() == [[3.0, 3.0]] * 3 and made[1].tolist() == [[10.0, 10.0]] * 2 and made[2].item() == 1
        assert module.p3.grad.tolist() == [3.0] * 5 and module.p3.grad.dtype == torch.bfloat16
        assert module.frozen.grad.tolist() == [7.0, 7.0] and module.unused.grad is None
        return [name for name, _ in seen.take()]

    assert run_ranks(2, on_rank) == [["allreduce_"] * 2] * 2
    monkeypatch.setattr(replicas, "BUCKET", 4)
    assert run_ranks(2, on_rank) == [["allreduce_"] * 4] * 2  # a bucket is full from its fourth number on


def test_half_precision_is_summed_in_fp32() -> None:
    run_ranks(4, check_half)


def test_a_main_gradient_goes_before_a_plain_one() -> None:
    def on_rank(rank: int) -> None:
        module = parameters(torch.ones(2), torch.ones(2))
        module.p0.main_grad, module.p1.main_grad = torch.full((2,), 5.0), None
        replicas.sum_replica_gradients(module, dist.group.WORLD)
        assert module.p0.main_grad.tolist() == [10.0, 10.0] and module.p0.grad.tolist() == [1.0, 1.0]
        assert module.p1.grad.tolist() == [2.0, 2.0]

    run_ranks(2, on_rank)


def check_modules(rank: int) -> None:
    """Each encoder once, in wrappers and in several chunks; none where there is none, and after the original."""
    made = SimpleNamespace(replicas=dist.group.WORLD)
    towers = [parameters(torch.ones(2)) for _ in range(4)]
    models = [Model(towers[0], made), Model(None, made), Model(towers[1], None), nn.Linear(1, 1)]  # type: ignore[arg-type]
    chunks = [Wrapper(Wrapper(model)) for model in models] + [nn.Sequential(Model(towers[2], made))]  # type: ignore[arg-type]
    alone = Model(towers[3], SimpleNamespace(replicas=None))  # type: ignore[arg-type]
    seen = []

    def finalize(model: Any, num_tokens: Any = None, *, force: bool = False) -> Any:
        seen.append([tower.p0.grad.tolist() for tower in towers])
        return num_tokens, force

    wrapped = replicas.with_replica_sum(finalize)
    assert (wrapped.func, wrapped.args) == (replicas.finalize_and_sum, (finalize,))  # both of which can be named
    assert replicas.with_replica_sum(wrapped) is wrapped
    assert wrapped([*chunks, alone], 3, force=True) == (3, True)
    assert seen == [[[1.0, 1.0]] * 4]
    assert [tower.p0.grad.tolist() for tower in towers] == [[2.0, 2.0], [1.0, 1.0], [2.0, 2.0], [1.0, 1.0]]
    assert wrapped(model=chunks) == (None, False)
    assert towers[0].p0.grad.tolist() == [4.0, 4.0]


def test_encoders_are_found_in_wrappers_and_chunks() -> None:
    run_ranks(2, check_modules)


def test_alone_there_is_nothing_to_do() -> None:
    module = parameters(torch.ones(2))
    with Collectives() as seen:
        replicas.broadcast_replicas(module, None)
        replicas.sum_replica_gradients(module, None)
        replicas.mark_replicas(module, None)
        replicas.offset_replica_ids({"a": SimpleNamespace(replica_id=(0, 0, 0))}, None, 2)
    assert not seen.take() and not hasattr(module.p0, "shared")


def test_the_first_replica_keeps_its_numbers_and_is_counted() -> None:
    def on_rank(rank: int) -> Any:
        module, entry = parameters(torch.ones(2)), SimpleNamespace(replica_id=(1, 1, 5))
        replicas.mark_replicas(module, dist.group.WORLD)
        replicas.offset_replica_ids([{"a": (entry,)}], dist.group.WORLD, 2)
        dist.barrier()
        return getattr(module.p0, "shared", False), entry.replica_id

    assert run_ranks(3, on_rank) == [(False, (1, 1, 5)), (True, (1, 3, 5)), (True, (1, 5, 5))]


def test_what_is_made_on_the_cpu_is_sent_by_nccl_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL has no CPU tensors; meta stands for its device here, on which what is made there has nothing to send."""
    sent = []
    monkeypatch.setattr(dist, "get_backend", lambda group: "nccl")
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: [4, 5])
    monkeypatch.setattr(dist, "broadcast", lambda tensor, src, group: sent.append((str(tensor.device), src)))
    to = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: to(self, "meta" if device == "cuda" else device))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: self)
    module = nn.Linear(2, 2)
    module.register_parameter("later", nn.Parameter(torch.empty(3, device="meta")))
    replicas.broadcast_replicas(module, object())  # type: ignore[arg-type]
    assert sent == [("meta", 4)] * 2


@pytest.mark.parametrize("frozen, finalize, refused", [
    (False, print, True),
    (False, replicas.with_replica_sum(print), False),
    (False, None, True),
    (True, print, False),
], ids=["another loop", "wrapped", "a loop that asks for nothing", "frozen"])  # fmt: skip
def test_a_loop_that_does_not_sum_is_refused(frozen: bool, finalize: Any, refused: bool) -> None:
    encoder = nn.Linear(1, 1).requires_grad_(not frozen)
    group: Any = object()
    with pytest.raises(ValueError, match="with_replica_sum") if refused else nullcontext():
        replicas.require_replica_sum(encoder, group, finalize)
    replicas.require_replica_sum(encoder, None, finalize)
    encoder.eval()  # without dropout, and perhaps trained all the same
    with pytest.raises(ValueError, match="with_replica_sum") if refused and finalize else nullcontext():
        replicas.require_replica_sum(encoder, group, finalize)
    with torch.no_grad():
        replicas.require_replica_sum(encoder, group, finalize)
