"""Sharded calls give what replicated ones give, features and gradients, in every form, mode and container."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from skillgen.runtime import api
from skillgen.runtime.forms import Units
from skillgen.runtime.plan import Run, Segment
from tests.distributed import run_ranks
from tests.runtime import sharding
from tests.runtime.sharding import (
    Case,
    annotated,
    check_idle_gradients,
    check_parity,
    grid,
    images,
    packed,
    planned,
    static,
)
from tests.runtime.shares import placeholders
from tests.runtime.toys import GridToy, Output, Toy, grid_batch

CASES: dict[str, Case] = {
    "one image": images((4, 4)),
    "images": images((4, 4), (2, 6), (5, 3), (2, 2), (8, 4)),
    "images without sizes": images((4, 4), (4, 4), (4, 4), sizes=False),
    "one row without sizes": images((2, 2), (2, 2), sizes=False),
    "grid": grid((1, 4, 4), (3, 2, 4), (1, 2, 2), (1, 8, 8)),
    "one video": grid((5, 4, 2)),
    "one temporal patch": grid((1, 2, 4)),
    "deepstack of different widths": grid((1, 4, 4), (3, 2, 4), container="deepstack", deepstack=(4, 9, 1)),
    "packed images": packed((1, 4, 4), (1, 3, 5), (1, 1, 1), tubelet=1),
    "video of three frames": packed((3, 4, 4)),
    "images and videos": packed((1, 4, 4), (5, 2, 2), (1, 3, 5), (2, 3, 3)),
    "tubelets of three": packed((7, 2, 4), (1, 2, 2), tubelet=3),
    "tubelets of four": packed((8, 2, 2), tubelet=4),
    "padded frames": packed((3, 4, 4), (1, 3, 5), padded=True),
    "static": static(3, 4, 4),
    "static, one": static(1, 5, 3),
}


def first_layers_frozen(toy: Toy, pixels: Tensor) -> None:
    toy.embed.requires_grad_(False)


def projector_only(toy: Toy, pixels: Tensor) -> None:
    toy.requires_grad_(False)
    toy.projector.requires_grad_(True)


def input_only(toy: Toy, pixels: Tensor) -> None:
    toy.requires_grad_(False)
    pixels.requires_grad_(True)


def all_and_input(toy: Toy, pixels: Tensor) -> None:
    pixels.requires_grad_(True)


def frozen(toy: Toy, pixels: Tensor) -> None:
    toy.requires_grad_(False)


MODES: dict[str, Callable[[Toy, Tensor], None]] = {
    function.__name__: function
    for function in (frozen, first_layers_frozen, projector_only, input_only, all_and_input)
}


@pytest.mark.parametrize(
    "world, methods", [(2, ("balanced", "contiguous", "count")), (3, ("balanced",)), (4, ("count",))]
)
def test_parity(world: int, methods: tuple[str, ...]) -> None:
    def on_rank(rank: int) -> None:
        for name, case in CASES.items():
            for method in methods:
                with annotated(f"{name}, {method}"), planned(method):
                    check_parity(rank, case)

    run_ranks(world, on_rank)


def test_parity_on_eight_ranks() -> None:
    def on_rank(rank: int) -> None:
        for name in ("one image", "grid", "images and videos", "deepstack of different widths"):
            with annotated(name):
                check_parity(rank, CASES[name])

    run_ranks(8, on_rank)


def test_parity_of_what_is_trainable() -> None:
    def on_rank(rank: int) -> None:
        for mode, prepare in MODES.items():
            for name in ("one image", "grid", "images and videos"):
                with annotated(f"{name}, {mode}"):
                    check_parity(rank, CASES[name], prepare=prepare)

    run_ranks(2, on_rank)


@pytest.mark.parametrize("reentrant", [False, True])
def test_parity_under_activation_checkpointing(reentrant: bool) -> None:
    """The whole call is recomputed in backward, its collectives included; ranks stop the recompute at one place."""

    def on_rank(rank: int) -> None:
        for early in (True, False):
            with torch.utils.checkpoint.set_checkpoint_early_stop(early):
                for name in ("one image", "grid", "images and videos", "deepstack of different widths"):
                    for mode in ("input_only", "projector_only", "all_and_input"):
                        with annotated(f"{name}, {mode}, early stop {early}"):
                            check_parity(rank, CASES[name], prepare=MODES[mode], checkpointed=reentrant)

    run_ranks(3, on_rank)


def test_parity_of_a_tower_that_checkpoints_itself() -> None:
    def on_rank(rank: int) -> None:
        check_parity(rank, images((4, 4), recompute=True))
        check_parity(rank, packed((3, 4, 4), (1, 3, 5), recompute=True))

    run_ranks(3, on_rank)


def test_parity_in_groups_that_are_not_the_first_ranks() -> None:
    def on_rank(rank: int) -> None:
        for name in ("one image", "grid", "images and videos"):
            check_parity(rank, CASES[name], strided=True)

    run_ranks(4, on_rank)


def test_groups_that_see_different_batches_do_not_meet() -> None:
    def on_rank(rank: int) -> None:
        group = sharding.strided_group()
        toy, form, batch = grid((1, 4, 4), (2, 2, 2 + rank % 2 * 2))()
        torch.testing.assert_close(sharding.shard(toy, form, group)(**batch), toy.encode(**batch))

    run_ranks(4, on_rank)


CONTAINERS = ("tensor", "tuple", "list", "pooler", "pooler_tuple", "deepstack")


def test_parity_in_every_container() -> None:
    def on_rank(rank: int) -> None:
        for container in CONTAINERS:
            with annotated(container):
                check_parity(rank, images((4, 4), (2, 6), (2, 2), container=container))
                check_parity(rank, grid((3, 2, 4), (1, 2, 2), container=container, deepstack=(4,)))
                check_parity(rank, packed((3, 2, 4), (1, 3, 5), container=container))

    run_ranks(2, on_rank)


def test_an_output_of_transformers_keeps_its_class() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    rows = torch.arange(6.0).view(3, 2)
    for kind in (outputs.BaseModelOutputWithPooling, outputs.BaseModelOutput):  # the latter has no such field
        given = kind(last_hidden_state=rows)
        given.pooler_output = tuple(rows.split(1))
        assert torch.equal(api.feature_levels(given)[0], rows)
        made = api.like_output(given, iter([rows]), [1, 2])
        assert type(made) is type(given) and [len(item) for item in made.pooler_output] == [1, 2]


def test_placeholder_rows_never_leave_their_rank() -> None:
    """Their rows are NaN: one of them in features or gradients would show."""

    def on_rank(rank: int) -> None:
        for case in (
            images((4, 4), poison=True),
            grid((1, 2, 2), (1, 4, 4), poison=True),
            packed((3, 4, 4), poison=True),
        ):
            check_parity(rank, case)
        check_parity(rank, packed((3, 4, 4), (1, 2, 2), poison=True))
        check_parity(rank, grid((1, 2, 2), poison=True, container="deepstack", deepstack=(3,)))

    run_ranks(4, on_rank)


def test_parameters_of_idle_ranks_have_gradients_of_zero() -> None:
    def on_rank(rank: int) -> None:
        check_idle_gradients(rank, images((4, 4), (2, 6)), busy=2)
        check_idle_gradients(rank, grid((1, 4, 4)), busy=1)
        check_idle_gradients(rank, packed((3, 4, 4)), busy=2)

    run_ranks(4, on_rank)


def test_towers_that_squeeze_get_at_least_two_rows() -> None:
    def on_rank(rank: int) -> None:
        for container in ("tuple", "tensor"):
            check_parity(rank, images((4, 4), (2, 2), squeeze=True, container=container))
            check_parity(rank, grid((2, 2, 2), (1, 2, 4), squeeze=True, container=container))
            check_parity(rank, packed((1, 2, 2), (2, 2, 2), squeeze=True, container=container))

    run_ranks(3, on_rank)


IMAGES = Units((Run(4), Run(8)), (1, 2), ("image", "image"))
MIXED = Units((Run(4), Run(8, 3)), (1, 2), ("image", "video"))
FILLS: dict[str, tuple[Units, list[Segment], list[str]]] = {
    "enough rows": (IMAGES, [Segment(1, 0, 1)], []),
    "one row": (IMAGES, [Segment(0, 0, 1)], ["image"]),
    "nothing": (IMAGES, [], ["image"]),
    "nothing of two kinds": (MIXED, [], ["image", "video"]),
    "no video": (MIXED, [Segment(0, 0, 1)], ["video"]),
    "no image": (MIXED, [Segment(1, 0, 2)], ["image"]),
    "both": (MIXED, [Segment(0, 0, 1), Segment(1, 2, 1)], []),
}


@pytest.mark.parametrize("units, share, expected", FILLS.values(), ids=FILLS)
def test_placeholders(units: Units, share: list[Segment], expected: list[str]) -> None:
    assert placeholders(units, share) == expected


def test_a_batch_without_images_passes_through() -> None:
    def on_rank(rank: int) -> None:
        pixels, sizes = torch.empty(0, 12), torch.empty(0, 3, dtype=torch.int64)
        given: list[Any] = []

        def encode(pixel_values: Tensor, image_grid_thw: Tensor) -> str:
            given.extend([pixel_values, image_grid_thw])
            return "as it was"

        run = sharding.shard(SimpleNamespace(encode=encode), GridToy.form, modules=[])  # type: ignore[arg-type]
        assert run(pixels, sizes) == "as it was"
        assert given[0] is pixels and given[1] is sizes

    run_ranks(2, on_rank)


def test_arguments_travel_by_position_and_by_name_and_are_not_changed() -> None:
    def on_rank(rank: int) -> None:
        toy, batch = GridToy(), grid_batch((1, 4, 4), (1, 2, 4))
        seen = {}

        def encode(pixel_values: Tensor, image_grid_thw: Tensor, *, scale: float = 1.0) -> Tensor:
            seen["scale"] = scale
            return toy.encode(pixel_values, image_grid_thw)

        run = sharding.shard(SimpleNamespace(encode=encode), GridToy.form, modules=[toy])  # type: ignore[arg-type]
        expected, fresh = toy.encode(**batch), grid_batch((1, 4, 4), (1, 2, 4))
        pixels, sizes = batch.values()
        torch.testing.assert_close(run(pixels, sizes), expected)
        torch.testing.assert_close(run(pixels, image_grid_thw=sizes, scale=2.0), expected)
        assert seen["scale"] == 2.0
        torch.testing.assert_close(run(image_grid_thw=sizes, pixel_values=pixels), expected)
        assert seen["scale"] == 1.0
        assert all(torch.equal(batch[name], fresh[name]) for name in fresh)

    run_ranks(2, on_rank)


@pytest.mark.parametrize("output", [None, "rows", {"a": 1}, [1, 2], Output()])
def test_an_output_that_cannot_be_gathered_is_named(output: Any) -> None:
    with pytest.raises(TypeError, match="cannot gather an encoder output of type"):
        api.feature_levels(output)


@pytest.mark.parametrize("flag, ranks, expected, told", [
    (True, 2, True, ""),
    (True, 1, False, "context_parallel_size is 1"),
    (False, 2, False, ""),
    (False, 1, False, ""),
])  # fmt: skip
@pytest.mark.parametrize("variable", ["0", "1"])
def test_is_enabled_says_once_why_not_whatever_a_ranks_environment_holds(
    flag: bool, ranks: int, expected: bool, told: str, variable: str, monkeypatch: Any, caplog: Any
) -> None:
    api.log_once.cache_clear()
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("VISION_DP_OVER_CP", variable)  # an older patch was switched by it
    assert [api.is_enabled(flag, ranks) for _ in range(2)] == [expected] * 2
    assert [record.levelname for record in caplog.records] == ["INFO"] * bool(told)
    assert told in caplog.text
