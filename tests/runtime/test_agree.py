"""When a rank fails or differs, every rank raises, soon, and says who and why."""

from __future__ import annotations

import gc
import re
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from skillgen.evals.kernel import rules
from skillgen.runtime import agree, api, plan
from skillgen.runtime.agree import VisionShardingError
from tests.distributed import run_ranks
from tests.runtime import sharding
from tests.runtime.sharding import Collectives, grid, images, packed
from tests.runtime.toys import Toy, grid_batch, image_batch, language_model, packed_batch

SOON = 5.0  # seconds


def message_on_every_rank(world: int, call: Callable[[int], Any], error: type[Exception]) -> list[str]:
    """What each rank raises; each has to within SOON."""

    def on_rank(rank: int) -> str:
        started = time.monotonic()
        with pytest.raises(error) as raised:
            call(rank)
        assert time.monotonic() - started < SOON
        return str(raised.value)

    return run_ranks(world, on_rank, timeout=20)


class Faulty:
    """Does something else on one rank, where the encoder stands."""

    def __init__(self, rank: int, fault: Callable[[Any], Any]) -> None:
        self.rank, self.fault = rank, fault

    def __call__(self, rank: int) -> Any:
        toy, form, batch = grid((1, 4, 4), (1, 2, 4), (1, 2, 2), (1, 4, 2))()
        encode = toy.encode

        def faulty(pixel_values: Tensor, image_grid_thw: Tensor) -> Any:
            output = encode(pixel_values, image_grid_thw)
            return self.fault(output) if rank == self.rank else output

        toy.encode = faulty
        return sharding.shard(toy, form)(**batch)


def out_of_memory(output: Any) -> Any:
    raise torch.OutOfMemoryError("tried to allocate 20 GiB")


FAULTS = {
    "raises": (out_of_memory, "the encoder failed on rank 1: OutOfMemoryError: tried to allocate 20 GiB"),
    "a row too few": (
        lambda rows: rows[1:],
        r"failed on rank 1: ValueError: the encoder returned \d+ rows where the plan has \d+",
    ),
    "a row too many": (lambda rows: torch.cat([rows, rows[:1]]), "failed on rank 1: ValueError: the encoder"),
    "another type": (
        lambda rows: {"rows": rows},
        "failed on rank 1: TypeError: cannot gather an encoder output of type dict",
    ),
    "another width": (lambda rows: rows[:, 1:], r"see different batches on rank 0: .*\[\(6, .*rank 1: .*\[\(5, "),
    "another dtype": (lambda rows: rows.float(), r"see different batches on rank 0: .*float64.*rank 1: .*float32"),
    "a level more": (lambda rows: (rows, [rows]), "see different batches on rank 0"),
}


@pytest.mark.parametrize("fault, message", FAULTS.values(), ids=FAULTS)
def test_a_rank_that_fails_is_known_to_all(fault: Callable[[Any], Any], message: str) -> None:
    for text in message_on_every_rank(3, Faulty(1, fault), VisionShardingError):
        assert re.search(message, text), text


def test_a_failing_rank_keeps_its_own_error_as_the_cause() -> None:
    def on_rank(rank: int) -> str:
        with pytest.raises(VisionShardingError) as raised:
            Faulty(1, out_of_memory)(rank)
        return type(raised.value.__cause__).__name__

    assert run_ranks(2, on_rank) == ["NoneType", "OutOfMemoryError"]


def test_what_a_failed_call_held_is_freed_with_its_error() -> None:
    """A cycle would keep the memory of the batch, and process groups at exit, until the garbage collector comes."""

    def on_rank(rank: int) -> bool:
        toy, form, batch = images((2, 2))()
        held = []

        def faulty(pixel_values: Tensor, image_sizes: Tensor) -> Any:
            features = pixel_values.clone()
            held.append(weakref.ref(features))
            return out_of_memory(features)

        toy.encode = faulty
        gc.disable()
        with suppress(VisionShardingError, torch.OutOfMemoryError):
            sharding.shard(toy, form)(**batch)
        return held[0]() is None

    assert run_ranks(2, on_rank) == [True, True]


def test_all_failing_ranks_are_named() -> None:
    def call(rank: int) -> None:
        toy, form, batch = images((2, 2))()
        toy.encode = lambda pixel_values, image_sizes: 1 // 0
        sharding.shard(toy, form)(**batch)

    for text in message_on_every_rank(2, call, VisionShardingError):
        assert text.count("ZeroDivisionError") == 2 and "rank 0:" in text and "rank 1:" in text


NOTHING = {"pixel_values": torch.empty(0, 12), "image_grid_thw": torch.empty(0, 3, dtype=torch.int64)}
BATCHES: dict[str, tuple[Callable[[], tuple[Toy, Any, Any]], dict[str, Any], str]] = {
    "sizes": (grid((1, 4, 4), (1, 2, 4)), grid_batch((1, 4, 4), (1, 4, 4)), "different batches"),
    "order": (grid((1, 4, 4), (1, 2, 4)), grid_batch((1, 2, 4), (1, 4, 4)), "different batches"),
    "one more": (grid((1, 4, 4), (1, 2, 4)), grid_batch((1, 4, 4), (1, 2, 4), (1, 2, 2)), "different batches"),
    "none": (grid((1, 4, 4), (1, 2, 4)), NOTHING, "on rank 0: 2 units, 6 rows.*rank 1: 0 units"),
    "kinds": (packed((2, 4, 4), (1, 4, 4)), packed_batch((1, 4, 4), (2, 4, 4)), "different batches"),
    "frame counts that do not fit": (
        packed((2, 4, 4), (1, 4, 4)),
        {**packed_batch((2, 4, 4), (1, 4, 4)), "num_frames": torch.tensor([2])},
        "failed on rank 1: ValueError: num_frames must cut imgs_sizes into items",
    ),
    "an image without a patch": (
        images((4, 4), (2, 2)),
        {**image_batch((4, 4), (2, 2)), "image_sizes": torch.tensor([[8, 8], [1, 4]])},
        "failed on rank 1: ValueError: ranks, patches, counts must be >= 1, .*patches=0",
    ),
}


@pytest.mark.parametrize("case, other, message", BATCHES.values(), ids=BATCHES)
def test_a_rank_with_another_batch_is_known_to_all(case: Any, other: dict[str, Any], message: str) -> None:
    def call(rank: int) -> None:
        toy, form, batch = case()
        sharding.shard(toy, form)(**(other if rank == 1 else batch))

    for text in message_on_every_rank(2, call, VisionShardingError):
        assert re.search(message, text), text


def test_a_rank_that_would_skip_backward_is_known_to_all() -> None:
    def call(rank: int) -> None:
        toy, form, batch = images((4, 4), (2, 2))()
        toy.requires_grad_(rank == 0)
        sharding.shard(toy, form)(**batch)

    for text in message_on_every_rank(2, call, VisionShardingError):
        assert "different batches" in text


def test_a_rank_that_plans_differently_is_known_to_all() -> None:
    """As with another version of the runtime: rows would arrive in the wrong place, or not at all."""

    def call(rank: int) -> None:
        toy, form, batch = images((2, 2), (2, 2), (4, 4))()
        if rank == 1:
            api.make_plan = rules.planner(plan, "count")
        sharding.shard(toy, form)(**batch)

    for text in message_on_every_rank(2, call, VisionShardingError):
        assert "different batches" in text


def test_a_rank_that_does_not_come_is_told_of() -> None:
    def on_rank(rank: int) -> None:
        toy, form, batch = images((4, 4), (2, 2))()
        group = dist.new_group(timeout=timedelta(seconds=1))
        if rank == 0:
            with pytest.raises(VisionShardingError, match="a rank did not answer: it has no images"):
                sharding.shard(toy, form, group)(**batch)
        dist.barrier()

    run_ranks(2, on_rank)


def test_the_group_goes_on_after_a_failure() -> None:
    def on_rank(rank: int) -> None:
        with pytest.raises(VisionShardingError):
            Faulty(0, out_of_memory)(rank)
        sharding.check_parity(rank, grid((1, 4, 4)))

    run_ranks(2, on_rank)


def check_locally(rank: int, group: Any, cp_size: int, **options: Any) -> None:
    """The group is refused before any collective."""
    toy, form, batch = images((4, 4))()
    facts = {"encode": toy.encode, "form": form, "group": group, "cp_size": cp_size, "modules": [toy], "alpha": 1}
    run = api.ShardedEncoder(**{**facts, "language_model": None, "name": "vision_dp_over_cp", **options})
    with Collectives() as seen:
        try:
            run(**batch)
        finally:
            assert not seen.take()


def test_a_group_of_the_wrong_size_is_refused() -> None:
    def call(rank: int) -> None:
        check_locally(rank, dist.group.WORLD, 4, name="Nemotron Omni vision_dp_over_cp")

    for text in message_on_every_rank(2, call, ValueError):
        assert text == "Nemotron Omni vision_dp_over_cp does not match its process group: config=4, group=2"


def test_a_missing_group_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^vision_dp_over_cp does not match its process group: config=2, group=None$"
    ):
        check_locally(0, None, 2)


def test_a_group_of_other_members_is_refused() -> None:
    def call(rank: int) -> None:
        strided = sharding.strided_group()
        blocks = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        check_locally(rank, blocks[rank // 2], 2, language_model=language_model(strided))

    texts = message_on_every_rank(4, call, ValueError)
    assert texts[0].endswith("images over ranks [0, 1], the language model's sequence over ranks [0, 2]")
    assert texts[3].endswith("images over ranks [2, 3], the language model's sequence over ranks [1, 3]")


@pytest.mark.parametrize("model", [None, nn.Linear(1, 1), language_model(None)])
def test_a_language_model_without_a_group_is_not_compared(model: Any) -> None:
    def on_rank(rank: int) -> None:
        agree.check_group(dist.group.WORLD, 2, model, "")
        dist.barrier()  # a rank that ends before the others have started takes them down

    run_ranks(2, on_rank)


def test_digests_differ_with_any_fact_and_fit_64_bits() -> None:
    facts = [(1, 2), (2, 1), (1, 2, 3), ("a",), ("b",), ()]
    digests = {agree.plan_digest(*fact) for fact in facts}
    assert len(digests) == len(facts)
    assert torch.tensor(sorted(digests), dtype=torch.int64).tolist() == sorted(digests)
    assert agree.plan_digest("a", 1.0) == agree.plan_digest("a", 1.0)


TRAINABLE: dict[str, tuple[list[bool], bool, bool, bool]] = {
    "all frozen": ([False, False], False, True, False),
    "the first layer": ([True, False], False, True, True),
    "the projector": ([False, True], False, True, True),
    "the input": ([False, False], True, True, True),
    "no grad": ([True, True], True, False, False),
}


@pytest.mark.parametrize("parameters, pixels, enabled, expected", TRAINABLE.values(), ids=TRAINABLE)
def test_backward_takes_part_where_anything_is_trainable(
    parameters: list[bool], pixels: bool, enabled: bool, expected: bool
) -> None:
    modules = tuple(nn.Linear(1, 1).requires_grad_(trainable) for trainable in parameters)
    with torch.set_grad_enabled(enabled):
        assert agree.is_trainable(modules, torch.ones(1, requires_grad=pixels)) is expected
