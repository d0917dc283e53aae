"""Groups of the vision encoder on gloo ranks: which are made, which are the text model's, and that each one works."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from skillgen.runtime.tp_dp import dp_columns, make_groups, replica_groups, tp_groups
from tests.distributed import run_ranks
from tests.vision_tp_dp.toys import Place

ROLES = ("tp", "column", "replicas")


def members(group: dist.ProcessGroup | None) -> list[int] | None:
    return None if group is None else dist.get_process_group_ranks(group)


def mine(lists: list[list[int]], rank: int) -> list[int]:
    return next(ranks for ranks in lists if rank in ranks)


def check_groups(rank: int, place: Place, tp: int, new: list[str]) -> None:
    """Members as enumerated, collectives among them only, and none made but `new` ones."""
    known = [place.text, place.world, place.cp_group]
    names: list[str] = []
    new_group = dist.new_group

    def recorded(ranks: list[int], *, group_desc: str, **options: Any) -> Any:
        if rank in ranks:
            names.append(group_desc)
        return new_group(ranks, group_desc=group_desc, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "new_group", recorded)
        made = make_groups(tp, text_tp=place.text, world=place.world, reuse=[None, place.cp_group])
    assert sorted(names) == sorted(new)
    world = dist.get_process_group_ranks(place.world)
    columns = dp_columns(world, tp, len(world) // tp)
    for role, lists in zip(
        ROLES, (tp_groups(world, tp), columns, replica_groups(world, tp, place.text_tp)), strict=True
    ):
        group, expected = getattr(made, role), mine(lists, rank)
        if role != "tp" and len(expected) == 1:
            assert group is None
            continue
        assert members(group) == expected and group.rank() == expected.index(rank)
        for other in known:
            assert group is other or members(other) != expected, f"{role} is there already"
        known.append(group)
        total = torch.tensor(rank)
        dist.all_reduce(total, group=group)
        assert int(total) == sum(expected)


@pytest.mark.parametrize("world, text_tp, cp, tp, new", [
    (4, 4, 1, 1, []),  # its TP is the CP group of one rank; column and replicas are the text TP group
    (4, 4, 1, 2, ["vision_tp", "vision_dp"]),  # its TP, and the column, whose ranks are the replicas too
    (4, 4, 1, 4, []),  # all is the text model's
    (4, 2, 2, 1, ["vision_tp"]),  # the column is all ranks of the microbatch
    (4, 2, 2, 2, []),  # the column is the CP group
    (4, 1, 4, 1, []),
    (8, 4, 2, 2, ["vision_tp", "vision_dp", "vision_replicas"]),
    (8, 4, 1, 2, ["vision_tp", "vision_dp"]),  # two microbatches at a time
    (8, 2, 2, 1, ["vision_tp"]),
])  # fmt: skip
def test_groups_are_made_only_where_there_is_none_like_them(
    world: int, text_tp: int, cp: int, tp: int, new: list[str]
) -> None:
    run_ranks(world, check_groups, Place(text_tp, cp), tp, new)


def check_timeout(rank: int) -> None:
    text = dist.new_group([0, 1, 2, 3], timeout=timedelta(minutes=7))
    made = make_groups(2, text_tp=text, world=text)
    assert made.tp is not text
    assert made.tp._get_backend(torch.device("cpu")).options._timeout == timedelta(minutes=7)


def test_a_new_group_has_the_timeout_of_the_text_models() -> None:
    run_ranks(4, check_timeout)


def test_what_is_reused_is_the_same_object() -> None:
    def on_rank(rank: int) -> None:
        place = Place(2, 2)
        made = place.vision(2)
        assert made.tp is place.text and made.column is place.cp_group and made.replicas is None
        made = place.vision(1)
        assert made.column is place.world and made.replicas is place.text
        made = Place(4, 1).vision(2)
        assert made.column is made.replicas  # without CP they are one
        dist.barrier()

    run_ranks(4, on_rank)


def test_ranks_that_are_in_different_numbers_of_groups_make_theirs() -> None:
    """megatron-core's embedding groups are of some pipeline stages only, and stay when its others are destroyed."""

    def on_rank(rank: int) -> Any:
        if rank < 2:
            dist.new_group([0, 1], use_local_synchronization=True)
        made = Place(4, 2).vision(2)
        total = torch.tensor(rank)
        for group in vars(made).values():
            dist.all_reduce(total, group=group)
        return [members(group) for group in vars(made).values()]

    seen = run_ranks(8, on_rank, timeout=20)
    assert seen[0] == [[0, 1], [0, 2, 4, 6], [0, 2]] and seen[7] == [[6, 7], [1, 3, 5, 7], [5, 7]]


def test_groups_on_sixteen_ranks() -> None:
    def on_rank(rank: int) -> Any:
        made = [members(group) for group in vars(Place(8, 2).vision(4)).values()]
        dist.barrier()
        return made

    seen = run_ranks(16, on_rank)
    assert seen[0] == [[0, 1, 2, 3], [0, 4, 8, 12], [0, 4]]
    assert seen[15] == [[12, 13, 14, 15], [3, 7, 11, 15], [11, 15]]


def test_a_vision_tp_that_does_not_divide_the_text_models_is_refused() -> None:
    """megatron-core would sum gradients of different parts of the encoder over CP."""

    def on_rank(rank: int) -> None:
        for tp, text_tp in ((4, 2), (3, 4), (0, 4)):
            with pytest.raises(
                ValueError, match=f"tp must be positive and divide the text model's {text_tp}, got {tp}"
            ):
                Place(text_tp, 4 // text_tp).vision(tp)
        dist.barrier()  # a rank that ends before the others have started takes them down

    run_ranks(4, on_rank)


def test_a_text_tp_group_that_is_not_in_a_row_is_refused() -> None:
    def on_rank(rank: int) -> str:
        place = Place(2, 2)
        with pytest.raises(ValueError, match="the text TP group must be ranks in a row of") as raised:
            make_groups(1, text_tp=place.cp_group, world=place.world)
        dist.barrier()
        return str(raised.value).partition(" of ")[2]

    assert run_ranks(4, on_rank) == ["[0, 1, 2, 3], got [0, 2]", "[0, 1, 2, 3], got [1, 3]"] * 2
