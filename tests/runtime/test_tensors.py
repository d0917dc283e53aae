"""Encoders whose images are entries of one tensor: equal images, groups of frames, padded patches."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.arms import apart
from skillgen.runtime.padded_patches import PaddedPatches
from skillgen.runtime.plan import Segment, make_plan
from skillgen.runtime.tensor_batch import TensorBatch
from tests.distributed import run_ranks
from tests.runtime.sharding import Case, check_parity, padded, planned, shard, tensors
from tests.runtime.shares import placeholders
from tests.runtime.tensor_toys import POOL, PaddedToy, TensorToy, padded_batch, tensor_batch

CASES: dict[str, Case] = {
    "images": tensors(5),
    "one image": tensors(1),
    "frames in groups": tensors(8, tubelet=2),
    "a short last group": tensors(7, tubelet=3),
    "fewer frames than a group": tensors(2, tubelet=4),
    "padded": padded((3, 6), (6, 3), (9, 6), (3, 3)),
    "padded, one image": padded((6, 6)),
    "padded, one row": padded((3, 3), (3, 3), (6, 9)),
    "padded to more than the longest": padded((3, 6), (6, 6), length=81),
    "padded, in a tuple": padded((3, 6), (6, 6), (3, 3), container="pooler_tuple"),
    "padded, in an object": padded((3, 6), (6, 6), (3, 3), container="pooler"),
    "no room for two rows": padded((3, 3)),
}


@pytest.mark.parametrize("world", [2, 4])
def test_parity(world: int) -> None:
    def on_rank(rank: int) -> None:
        for name, case in CASES.items():
            try:
                check_parity(rank, case)
                with planned("count"):
                    check_parity(rank, case)
                check_parity(rank, case, min_patches=40)
            except Exception as error:
                error.add_note(name)
                raise

    run_ranks(world, on_rank)


def test_placeholder_rows_never_leave_their_rank() -> None:
    def on_rank(rank: int) -> None:
        for options in ({}, {"min_patches": 100}):
            check_parity(rank, tensors(1, poison=True), **options)
            check_parity(rank, tensors(3, tubelet=2, poison=True), **options)
            check_parity(rank, padded((3, 6), (6, 6), poison=True), **options)

    run_ranks(3, on_rank)


def test_groups_of_all_shares_are_the_batch() -> None:
    draw = random.Random(3)
    for _ in range(60):
        frames, group, ranks = draw.randint(1, 20), draw.randint(1, 4), draw.randint(1, 5)
        form = TensorBatch(tokens=4, group=group)
        batch = {"pixel_values": torch.arange(1, frames + 1)[:, None]}
        units = form.units(batch)
        made: list[list[int]] = []
        for share in make_plan(units.runs, ranks, alpha=1).shares:
            fill = placeholders(units, share)
            taken = form.take(batch, share, fill)["pixel_values"].flatten().tolist()
            assert len(taken) % group == 0 and taken
            groups = [taken[at : at + group] for at in range(0, len(taken), group)]
            own = sum(segment.count for segment in share)
            assert groups[own:] == [[0] * group] * len(fill)
            made += groups[:own]
        padded_frames = [min(frame, frames) for frame in range(1, len(made) * group + 1)]
        assert sorted(made) == [padded_frames[at : at + group] for at in range(0, len(padded_frames), group)]


def test_a_placeholder_has_the_patches_and_rows_of_a_unit() -> None:
    form = TensorBatch(tokens=4, group=3, patches=16)
    units = form.units({"pixel_values": torch.empty(5, 3, 8, 8)})
    assert units == (((48, 2),), (4,), ("image",), 4, 48)
    assert placeholders(units, [Segment(0, 0, 1)], 97) == ["image"] * 2


def test_rows_of_padded_images_are_counted_from_their_positions() -> None:
    batch = padded_batch((3, 6), (6, 6), (3, 3), length=72)
    units = PaddedToy.form.units(batch)
    assert units.rows == (2, 4, 1) and {run.patches for run in units.runs} == {72}
    taken = PaddedToy.form.take(batch, [Segment(2, 0, 1)], ["image"])
    assert torch.equal(taken["image_position_ids"][0], batch["image_position_ids"][2])
    blank = taken["image_position_ids"][1]
    assert taken["pixel_values"].shape == (2, 72, batch["pixel_values"].shape[2])
    assert not taken["pixel_values"][1].any()
    assert sorted(map(tuple, blank[blank[:, 0] >= 0].tolist())) == [
        (x, y) for x in range(2 * POOL) for y in range(POOL)
    ]
    assert PaddedToy.form.units(taken).rows == (1, 2)


def test_wrong_numbers_of_tokens_are_known_to_all() -> None:
    def on_rank(rank: int) -> None:
        toy = TensorToy(container="stacked")
        with pytest.raises(RuntimeError, match="the encoder returned 8 rows where the plan has 10"):
            shard(toy, TensorBatch(tokens=5))(**tensor_batch(4))

    run_ranks(2, on_rank)


EMPTY: dict[str, tuple[Any, dict[str, Any]]] = {
    "tensor": (TensorBatch(tokens=4, group=2), {"pixel_values": torch.empty(0, 3, 4, 4)}),
    "padded": (
        PaddedPatches(pooling=3),
        {"pixel_values": torch.empty(0, 9, 12), "image_position_ids": torch.empty(0, 9, 2, dtype=torch.int64)},
    ),
    "no positions": (PaddedPatches(pooling=3), {"pixel_values": torch.empty(2, 9, 12), "image_position_ids": None}),
}


@pytest.mark.parametrize("form, batch", EMPTY.values(), ids=EMPTY)
def test_a_batch_without_images_has_no_units(form: Any, batch: dict[str, Any]) -> None:
    assert form.units(batch).runs == ()


def test_the_real_tower_of_gemma_4() -> None:
    modeling = pytest.importorskip("transformers.models.gemma4.modeling_gemma4")
    config = pytest.importorskip("transformers.models.gemma4.configuration_gemma4").Gemma4VisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        head_dim=8, patch_size=2, position_embedding_size=32, pooling_kernel_size=POOL,
    )  # fmt: skip
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    tower = modeling.Gemma4VisionModel(config).double()
    for parameter in tower.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    grids = [(3, 6), (6, 6), (3, 3), (9, 3), (3, 6)]

    def encode(pixel_values: torch.Tensor, image_position_ids: torch.Tensor) -> torch.Tensor:
        return tower(pixel_values=pixel_values, pixel_position_ids=image_position_ids).last_hidden_state

    def on_rank(rank: int) -> None:
        for count in (1, 3, len(grids)):
            batch = padded_batch(*grids[:count], length=54)
            made: Any = SimpleNamespace(encode=encode)
            run = shard(made, PaddedToy.form, modules=[tower], alpha=64, min_patches=96)
            gradients = []
            rows, expected = run(**batch), encode(**batch)
            assert apart([rows], [expected]) <= tolerances.of(torch.float32)
            weights = torch.arange(1.0, rows.numel() + 1, dtype=rows.dtype).sin().view_as(rows)
            for loss in ((rows * weights)[rank::2].sum(), (expected * weights).sum()):
                tower.zero_grad()
                loss.backward()
                gradients.append(torch.cat([p.grad.flatten() for p in tower.parameters() if p.grad is not None]))
            dist.all_reduce(gradients[0])
            assert apart(gradients[:1], gradients[1:]) <= tolerances.of(torch.float32)

    run_ranks(2, on_rank)
