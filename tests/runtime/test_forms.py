"""How each form reads a batch's units and cuts out a share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skillgen.runtime.forms import PLACEHOLDER_ROWS
from skillgen.runtime.grid_items import GridItems
from skillgen.runtime.grid_rows import GridRows
from skillgen.runtime.image_batch import ImageBatch
from skillgen.runtime.packed_patches import PackedPatches
from skillgen.runtime.plan import Plan, Run, Segment, make_plan
from tests.runtime.shares import check_tubelets
from tests.runtime.toys import GridToy, ImageToy, PackedSeqParams, grid_batch, image_batch, packed_batch, packed_params


def any_plan(draw: Any, runs: Sequence[Run]) -> Plan:
    """Every unit on a rank of its own choosing."""
    ranks = draw(st.integers(1, 5))
    shares: list[list[Segment]] = [[] for _ in range(ranks)]
    for run, (_, count) in enumerate(runs):
        for unit in range(count):
            share = shares[draw(st.integers(0, ranks - 1))]
            if share and share[-1].run == run and share[-1].start + share[-1].count == unit:
                share[-1] = share[-1]._replace(count=share[-1].count + 1)
            else:
                share.append(Segment(run, unit, 1))
    return Plan(tuple(map(tuple, shares)), (0,) * ranks)


def cut_and_joined(form: Any, batch: dict[str, Any], plan: Plan, length: Any) -> torch.Tensor:
    """The pixels of all shares, in the order of the batch; `length(segment)` is how many of them a segment holds."""
    found = {}
    for share in plan.shares:
        if share:
            taken = form.take(batch, share, [])[form.pixels]
            axis = 1 if taken.ndim == 3 else 0
            found.update(zip(share, taken.split([length(segment) for segment in share], axis), strict=True))
    return torch.cat([found[segment] for segment in sorted(found)], axis)


sides = st.integers(1, 4)


@settings(deadline=None, max_examples=60)
@given(st.data(), st.lists(st.tuples(sides, sides, sides), min_size=1, max_size=5), st.booleans())
def test_grid_rows_of_all_shares_are_the_batch(data: Any, items: Any, split_frames: bool) -> None:
    form, batch = (GridRows if split_frames else GridItems)(merge_size=1), grid_batch(*items)
    units = form.units(batch)
    plan = any_plan(data.draw, units.runs)
    joined = cut_and_joined(form, batch, plan, lambda s: s.count * units.runs[s.run].patches)
    assert torch.equal(joined, batch["pixel_values"])
    for share in plan.shares:
        grid = form.take(batch, share, [] if share else ["image"])["image_grid_thw"].tolist()
        assert [h * w for _, h, w in grid[: len(share)]] == [items[s.run][1] * items[s.run][2] for s in share]


@settings(deadline=None, max_examples=60)
@given(st.data(), st.lists(st.tuples(sides, sides), min_size=1, max_size=6))
def test_images_of_all_shares_are_the_batch(data: Any, grids: Any) -> None:
    form, batch = ImageBatch(patch_size=2, merge_size=1), image_batch(*grids)
    plan = any_plan(data.draw, form.units(batch).runs)
    for share in plan.shares:
        taken = form.take(batch, share, [] if share else ["image"])
        for place, (run, _, _) in enumerate(share):
            height, width = taken["image_sizes"][place].tolist()
            assert [height, width] == batch["image_sizes"][run].tolist()
            assert torch.equal(
                taken["pixel_values"][place, :, :height, :width], batch["pixel_values"][run, :, :height, :width]
            )
        if share:
            assert taken["pixel_values"].shape[-2:] == tuple(taken["image_sizes"].max(0).values.tolist())


@settings(deadline=None, max_examples=60)
@given(st.data(), st.lists(st.tuples(sides, sides, sides), min_size=1, max_size=5))
def test_packed_patches_of_all_shares_are_the_batch(data: Any, items: Any) -> None:
    form, batch = PackedPatches(patch_size=2), packed_batch(*items)
    units = form.units(batch)
    plan = any_plan(data.draw, units.runs)
    joined = cut_and_joined(form, batch, plan, lambda s: s.count * units.runs[s.run].patches)
    assert torch.equal(joined, batch["images"])


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("tubelet", [2, 3, 4])
def test_tubelets_of_single_videos_stay_whole(tubelet: int, ranks: int) -> None:
    for frames in range(1, 21):
        check_tubelets([frames], tubelet, ranks)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("tubelet", [2, 3, 4])
def test_tubelets_of_mixed_batches_stay_whole(tubelet: int, ranks: int) -> None:
    draw = random.Random(f"{tubelet} {ranks}")
    for _ in range(60):
        counts = [draw.choice([1, 1, draw.randint(2, 12)]) for _ in range(draw.randint(1, 6))]
        check_tubelets(counts, tubelet, ranks, draw.choice(["balanced", "contiguous", "count"]))


@pytest.mark.parametrize("units, ranks", [(15, 8), (31, 16), (9, 8), (7, 4)])
def test_remainder_is_not_heaped_on_one_rank(units: int, ranks: int) -> None:
    form = ImageBatch(patch_size=2, merge_size=1)
    shares = make_plan(form.units(image_batch(*[(2, 2)] * units)).runs, ranks, alpha=8).shares
    assert max(map(len, shares)) == -(-units // ranks)
    assert min(map(len, shares)) >= units // ranks


def other_params() -> PackedSeqParams:
    bounds = torch.tensor([0, 4, 10, 16], dtype=torch.int32)
    return packed_params(
        [4, 6, 6],
        cu_seqlens_q_padded=bounds + 0,
        cu_seqlens_kv_padded=bounds + 0,
        total_tokens=16,
        tokens_per_sample=3,
    )


@pytest.mark.parametrize("longest", [6, torch.tensor(6, dtype=torch.int32), torch.tensor([6], dtype=torch.int32)])
def test_sequence_bounds_describe_the_share(longest: Any) -> None:
    params = other_params()
    params.max_seqlen_q = params.max_seqlen_kv = longest
    batch = {**packed_batch((1, 2, 2), (2, 2, 3)), "vision_packed_seq_params": params}
    form = PackedPatches(patch_size=2, tubelet=2)
    taken = form.take(batch, [Segment(0, 0, 1)], ["video"])["vision_packed_seq_params"]
    for name in ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded"):
        assert getattr(taken, name).tolist() == [0, 4, 12, 20], name
        assert getattr(taken, name).dtype == torch.int32
    assert type(taken.max_seqlen_q) is type(longest) and int(taken.max_seqlen_q) == int(taken.max_seqlen_kv) == 8
    if isinstance(longest, torch.Tensor):
        assert taken.max_seqlen_q.shape == longest.shape and taken.max_seqlen_q.dtype == longest.dtype
    assert taken.total_tokens == 20
    assert taken.seq_idx.tolist() == [[0] * 4 + [1] * 8 + [2] * 8]
    assert (taken.qkv_format, taken.tokens_per_sample) == ("thd", 3)


def test_fields_that_were_not_given_stay_so() -> None:
    taken = PackedPatches(patch_size=2).take(packed_batch((1, 2, 2), (1, 2, 3)), [Segment(1, 0, 1)], [])
    params = taken["vision_packed_seq_params"]
    assert params.cu_seqlens_q_padded is params.total_tokens is params.seq_idx is None
    assert params.cu_seqlens_q.tolist() == [0, 6] and params.max_seqlen_q == 6


def test_the_callers_objects_are_not_changed() -> None:
    batch = {**packed_batch((1, 2, 2), (2, 2, 3)), "vision_packed_seq_params": other_params()}
    PackedPatches(patch_size=2, tubelet=2).take(batch, [Segment(1, 0, 1)], ["image"])
    fresh = packed_batch((1, 2, 2), (2, 2, 3))
    assert all(torch.equal(batch[name], fresh[name]) for name in ("images", "imgs_sizes", "num_frames"))
    for name, value in vars(other_params()).items():
        ours = getattr(batch["vision_packed_seq_params"], name)
        assert torch.equal(ours, value) if isinstance(value, torch.Tensor) else ours == value, name


PLACEHOLDERS = {
    "images": (ImageToy.form, image_batch((4, 4), (6, 2))),
    "grid": (GridToy.form, grid_batch((1, 4, 4), (3, 2, 4))),
    "whole videos": (GridItems(merge_size=2), grid_batch((3, 2, 4))),
    "packed": (PackedPatches(patch_size=2, tubelet=2), packed_batch((1, 4, 4), (3, 3, 5))),
    "tubelets of four": (PackedPatches(patch_size=2, tubelet=4), packed_batch((1, 4, 4), (3, 3, 5))),
    "padded": (PackedPatches(patch_size=2, tubelet=2), packed_batch((1, 4, 4), (3, 3, 5), padded=True)),
}


@pytest.mark.parametrize("form, batch", PLACEHOLDERS.values(), ids=PLACEHOLDERS)
def test_a_placeholder_is_legal_and_has_the_rows_foretold(form: Any, batch: dict[str, Any]) -> None:
    units = form.units(batch)
    for kind in set(units.kinds):
        taken = form.units({**batch, **form.take(batch, [], [kind])})
        assert set(taken.kinds) == {kind}
        assert [run.count * rows for run, rows in zip(taken.runs, taken.rows, strict=True)] == [PLACEHOLDER_ROWS]


ZERO = {
    "images": (ImageToy.form, {"pixel_values": torch.empty(0, 3, 4, 4), "image_sizes": torch.empty(0, 2)}),
    "grid": (GridToy.form, {"pixel_values": torch.empty(0, 12), "image_grid_thw": torch.empty(0, 3)}),
    "packed": (
        PackedPatches(patch_size=2, tubelet=2),
        {"images": torch.empty(1, 0, 12), "imgs_sizes": torch.empty(0, 2)},
    ),
    "padded": (
        PackedPatches(patch_size=2, tubelet=2),
        {"images": torch.empty(0, 3, 4, 4), "imgs_sizes": torch.empty(0, 2)},
    ),
    "images without sizes": (ImageToy.form, image_batch((4, 4), (4, 4), sizes=False)),
    "static": (
        PackedPatches(patch_size=2, tubelet=2),
        {"images": torch.ones(3, 3, 8, 8), "num_frames": torch.tensor([3])},
    ),
}


@pytest.mark.parametrize("form, batch", ZERO.values(), ids=ZERO)
def test_a_batch_without_images_has_no_units(form: Any, batch: dict[str, Any]) -> None:
    assert form.units(batch).runs == ()


@pytest.mark.parametrize(
    "batch, message",
    [
        (
            {**packed_batch((1, 2, 2), (2, 2, 2)), "num_frames": torch.tensor([1, 1])},
            r"items of one size: \[1, 1\] for",
        ),
        ({**packed_batch((1, 2, 2), (1, 2, 4)), "num_frames": torch.tensor([2])}, "items of one size"),
    ],
)
def test_frame_counts_that_do_not_fit_are_named(batch: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PackedPatches(patch_size=2, tubelet=2).units(batch)


def test_sizes_may_be_a_list_of_tensors() -> None:
    form = ImageBatch(patch_size=2, merge_size=2)
    call = {"pixel_values": torch.randn(2, 3, 16, 16), "image_sizes": torch.tensor([[16, 16], [4, 8]])}
    share = (Segment(1, 0, 1),)
    want_units, want = form.units(call), form.take(call, share, ["image"])
    listed = {**call, "image_sizes": [torch.tensor([16, 16]), torch.tensor([4, 8])]}
    assert form.units(listed) == want_units
    got = form.take(listed, share, ["image"])
    assert torch.equal(got["pixel_values"], want["pixel_values"])
    assert torch.tensor(got["image_sizes"]).tolist() == want["image_sizes"].tolist()
