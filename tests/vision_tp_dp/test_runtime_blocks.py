"""Images in blocks: whole, once each, none overfull, as few blocks as best fit needs, and equal work on every rank."""

from __future__ import annotations

import time
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skillgen.runtime.plan import Run, Segment, make_plan
from skillgen.runtime.tp_dp import GridBlocks, pack_blocks
from skillgen.runtime.tp_dp.packing import Block
from tests.runtime.shares import placeholders
from tests.vision_tp_dp.toys import MERGE, batch_of, images

few_sizes = st.sampled_from([1, 2, 3, 9, 16, 17, 30, 36, 64])
some_runs = st.lists(st.builds(Run, few_sizes | st.integers(1, 64), st.integers(1, 40) | st.just(1)), max_size=16)


def best_fit(sizes: list[int], room: int) -> list[int]:
    """What is used of each block where each unit, largest first, goes to the fullest block that has room."""
    used: list[int] = []
    for size in sorted(sizes, reverse=True):
        fits = [block for block, patches in enumerate(used) if patches + size <= room]
        if not fits:
            used.append(0)
            fits = [len(used) - 1]
        used[max(fits, key=used.__getitem__)] += size
    return used


def least_blocks(sizes: list[int], room: int) -> int:
    """The least number of blocks, by trying."""

    def fits(rest: list[int], free: list[int]) -> bool:
        if not rest:
            return True
        places = {space: block for block, space in enumerate(free) if space >= rest[0]}
        return any(
            fits(rest[1:], [space - rest[0] * (block == place) for block, space in enumerate(free)])
            for place in places.values()
        )

    ordered = sorted(sizes, reverse=True)
    return next(count for count in range(len(sizes) + 1) if fits(ordered, [room] * count))


def used_by_block(runs: list[Run], blocks: tuple[Block, ...]) -> list[int]:
    return [sum(runs[run].patches * count for run, _, count in block) for block in blocks]


@settings(deadline=None, max_examples=100)
@given(some_runs, st.integers(64, 200), st.integers(1, 9))
def test_every_unit_once_in_blocks_that_hold_them(runs: list[Run], room: int, multiple: int) -> None:
    blocks = pack_blocks(runs, room, multiple)
    units = [(s.run, s.start + i) for block in blocks for s in block for i in range(s.count)]
    assert sorted(units) == [(index, unit) for index, run in enumerate(runs) for unit in range(run.count)]
    assert all(list(block) == sorted(block) for block in blocks)
    used = used_by_block(runs, blocks)
    assert max(used, default=0) <= room
    assert len(used) % multiple == 0
    sizes = [run.patches for run in runs for _ in range(run.count)]
    assert sorted(filter(None, used)) == sorted(best_fit(sizes, room))  # on run lengths, as one by one
    assert len(used) - sum(map(bool, used)) < multiple


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 20), max_size=8), st.integers(20, 30))
def test_the_number_of_blocks_is_near_the_least(sizes: list[int], room: int) -> None:
    """Within 11/9 and 6/9 of a block, the guarantee of first and best fit by decreasing size."""
    blocks = pack_blocks([Run(size) for size in sizes], room)
    least = least_blocks(sizes, room)
    assert least <= len(blocks) <= (11 * least + 6) / 9


@pytest.mark.parametrize("patches, room, multiple, used", [
    pytest.param([], 8, 4, [], id="none"),
    pytest.param([8], 8, 1, [8], id="full"),
    pytest.param([8], 8, 4, [8, 0, 0, 0], id="one for four"),
    pytest.param([5, 5, 3, 3], 8, 2, [8, 8], id="pairs"),
    pytest.param([5, 5, 5, 5, 5], 8, 4, [5, 5, 5, 0, 5, 0, 5, 0], id="five for four"),
    pytest.param([6, 4, 4, 2], 8, 1, [8, 8], id="the fullest that has room"),
    pytest.param([7, 6, 5, 2, 2, 1, 1], 8, 2, [8, 8, 8, 0], id="three for four"),
])  # fmt: skip
def test_blocks(patches: list[int], room: int, multiple: int, used: list[int]) -> None:
    runs = [Run(size) for size in patches]
    assert sorted(used_by_block(runs, pack_blocks(runs, room, multiple))) == sorted(used)


def test_each_part_gets_large_units_and_small_ones() -> None:
    runs = [Run(60), Run(59), Run(58), Run(57), Run(4, 60)]
    blocks = pack_blocks(runs, 64, 4)
    for part in range(4):
        mine = blocks[part * len(blocks) // 4 : (part + 1) * len(blocks) // 4]
        assert sum(runs[run].patches > 50 for block in mine for run, _, _ in block) == 1


@pytest.mark.parametrize("runs, room, message", [
    ([Run(4), Run(36, 3)], 32, "vision_block_patches must be at least the largest image's 36, got 32"),
    ([], 0, "vision_block_patches must be at least the largest image's 1, got 0"),
    ([Run(4)], -4, "vision_block_patches must be at least the largest image's 4, got -4"),
])  # fmt: skip
def test_a_block_that_is_too_small_is_named(runs: list[Run], room: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        pack_blocks(runs, room)


@pytest.mark.parametrize("room", [0, -4, 6])
def test_a_block_of_part_of_a_row_is_named(room: int) -> None:
    with pytest.raises(
        ValueError, match=f"^vision_block_patches must be a positive multiple of the 4 .*, got {room}$"
    ):
        GridBlocks(merge_size=2, block_patches=room, ranks=2)


def test_packing_a_thousand_images_and_a_long_video_is_quick() -> None:
    runs = [Run(4 * (side % 97 + 4), 1) for side in range(1000)] + [Run(1024, 4096)]
    started = time.process_time()
    blocks = pack_blocks(runs, 16384, 8)
    assert time.process_time() - started < 0.5
    assert sum(run.patches * run.count for run in runs) > 0.97 * 16384 * len(blocks)


def blocks_of(room: int, ranks: int, **options: Any) -> GridBlocks:
    return GridBlocks(
        merge_size=MERGE, pixels="hidden_states", grid="grid_thw", block_patches=room, ranks=ranks, **options
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 17), st.sampled_from([32, 36, 64, 256]), st.integers(1, 5), st.booleans())
def test_shares_of_blocks_are_the_batch_and_equal_work(count: int, room: int, ranks: int, listed: bool) -> None:
    form, batch = blocks_of(room, ranks), dict(batch_of(images(count)))
    rows = batch["hidden_states"].view(-1, MERGE**2, batch["hidden_states"].shape[1])[:, 0]  # one patch of each row
    if listed:
        batch["grid_thw"] = batch["grid_thw"].tolist()
    units = form.units(batch)
    (run,) = units.runs
    largest = max(h * w for _, h, w in torch.as_tensor(batch["grid_thw"]).tolist())
    plan = make_plan(units.runs, ranks, alpha=1)
    gathered = []
    for rank, share in enumerate(plan.shares):
        assert share == (Segment(0, rank * run.count // ranks, run.count // ranks),)
        assert placeholders(units, share) == []
        taken = form.take(batch, share, [])
        assert type(taken["grid_thw"]) is type(batch["grid_thw"])
        grid = torch.as_tensor(taken["grid_thw"])
        pixels = taken["hidden_states"]
        assert len(pixels) == room * run.count // ranks == int(grid.prod(1).sum())
        ends = set(accumulate(h * w for t, h, w in grid.tolist() for _ in range(t)))
        assert all(block * room in ends for block in range(1, run.count // ranks + 1))
        gathered.append(pixels.view(-1, MERGE**2, pixels.shape[1])[:, 0])
        for piece in pixels.split(grid.prod(1).tolist()):  # free space is apart from every image
            assert piece.any(1).all() or not piece.any()
            assert piece.any() or len(piece) <= largest  # attention within free space costs its square
    indices = form.unpack_indices(batch)
    assert torch.equal(torch.cat(gathered)[indices], rows)


def test_a_block_of_one_row_gets_a_placeholder_on_every_rank() -> None:
    batch, form = batch_of([(1, 2, 2)] * 3), blocks_of(4, 4)
    units = form.units(batch)
    for share in make_plan(units.runs, 4, alpha=1).shares:
        fill = placeholders(units, share)
        assert fill == ["image"]
        assert form.take(batch, share, fill)["grid_thw"].tolist() == [[1, 2, 2], [1, 2, 4]]


def test_a_batch_without_images_has_no_blocks() -> None:
    form, batch = blocks_of(64, 4), batch_of([])
    assert form.units(batch).runs == () and len(form.unpack_indices(batch)) == 0
