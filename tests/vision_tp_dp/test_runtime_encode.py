"""A tower with tensor-parallel layers, its images shared out: features and gradients are those of one rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from skillgen.runtime.agree import VisionShardingError
from skillgen.runtime.tp_dp import encode, replicas
from tests.distributed import run_ranks
from tests.runtime.sharding import Collectives, levels_of, objective
from tests.vision_tp_dp.toys import (
    MERGE,
    Place,
    Tower,
    all_frozen,
    batch_of,
    check_padding,
    check_parity,
    check_same_work,
    images,
    reference,
    shard,
)

FOUR = [(Place(4, 1), 2), (Place(2, 2), 1)]
OTHERS = [(Place(4, 1), 1), (Place(4, 1), 4), (Place(2, 2), 2), (Place(1, 4), 1)]
EIGHT = [(Place(4, 2), 2), (Place(4, 2), 1), (Place(2, 4), 2), (Place(8, 1), 2)]


def check_counts(rank: int, layouts: list[tuple[Place, int]], counts: range, **options: Any) -> None:
    """Every number of images at every layout, in turns unpacked and in blocks of two sizes."""
    for place, tp in layouts:
        for count in counts:
            room = (None, 32, 64)[(count + tp + place.cp) % 3]
            try:
                check_parity(rank, place, tp, images(count), block_patches=room, **options)
            except Exception as error:
                error.add_note(f"{place}, vision TP {tp}, {count} images, blocks of {room}")
                raise


def test_parity_on_four_ranks() -> None:
    run_ranks(4, check_counts, FOUR, range(18))
    run_ranks(4, check_counts, OTHERS, range(1, 18, 4))


@pytest.mark.evals
def test_parity_on_eight_ranks() -> None:
    run_ranks(8, check_counts, EIGHT, range(0, 18, 4))


@pytest.mark.evals
def test_parity_on_sixteen_ranks() -> None:
    run_ranks(16, check_counts, [(Place(8, 2), 4)], range(0, 18, 6))


def test_parity_under_activation_checkpointing() -> None:
    """The whole call is recomputed in backward, its collectives and the tower's own included."""

    def on_rank(rank: int) -> None:
        for reentrant in (False, True):
            check_counts(rank, FOUR, range(1, 4), checkpointed=reentrant)

    run_ranks(4, on_rank)


def merger_only(tower: Tower) -> None:
    tower.requires_grad_(False)
    tower.merger.requires_grad_(True)


def first_layer_frozen(tower: Tower) -> None:
    tower.patch_embed.requires_grad_(False)
    tower.layers[0].requires_grad_(False)


def test_parity_of_what_is_trainable() -> None:
    def on_rank(rank: int) -> None:
        for frozen in (merger_only, first_layer_frozen, all_frozen):
            check_counts(rank, FOUR, range(1, 4), frozen=frozen)
        place = Place(4, 1)
        made = place.vision(2)
        tower, batch = Tower(made.tp), batch_of(images(5))
        for mode in (torch.no_grad(), torch.inference_mode()):
            with mode:
                levels = levels_of(shard(tower, made, block_patches=32)(**batch))
            assert not any(level.requires_grad for level in levels)
            for ours, theirs in zip(levels, reference(tuple(images(5)), all_frozen)[1], strict=True):
                torch.testing.assert_close(ours, theirs)

    run_ranks(4, on_rank)


def test_microbatches_of_other_ranks_do_not_meet() -> None:
    def on_rank(rank: int) -> None:
        check_parity(rank, Place(2, 2), 1, images(5 + rank // 4 * 3))
        check_parity(rank, Place(4, 1), 2, images(5 + rank // 4 * 3), block_patches=32)

    run_ranks(8, on_rank)


def grid_by_name(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A hook that wants what the model's call gives by name."""
    assert not args and kwargs["grid_thw"].prod(-1).sum() == len(kwargs["hidden_states"])


@pytest.mark.parametrize("place, tp, moved", [(Place(4, 1), 1, False), (Place(2, 2), 1, True), (Place(2, 2), 2, True)])
def test_backward_moves_gradients_over_cp_alone(place: Place, tp: int, moved: bool) -> None:
    def on_rank(rank: int) -> None:
        made = place.vision(tp)
        tower, batch = Tower(made.tp), batch_of(images(7))
        tower.register_forward_pre_hook(grid_by_name, with_kwargs=True)
        with Collectives() as seen:
            output = shard(tower, made)(**batch)
            forward = [name for name, _ in seen.take() if name != "allreduce_"]  # the tower's own
            objective(output, rank=None, ranks=1).backward()
            backward = [name for name, _ in seen.take() if name != "allreduce_"]
        assert forward == ["allgather_", "alltoall_base_"]
        assert backward == ["alltoall_base_"] * moved
        dist.barrier()

    run_ranks(4, on_rank)


def test_a_rank_without_images_has_gradients_of_zero() -> None:
    def on_rank(rank: int) -> list[bool]:
        made = Place(4, 1).vision(1)
        tower = Tower(made.tp)
        objective(shard(tower, made)(**batch_of([(1, 4, 4), (1, 2, 4)])), rank=None, ranks=1).backward()
        assert all(parameter.grad is not None for parameter in tower.parameters())
        dist.barrier()
        return [bool(parameter.grad.any()) for parameter in tower.parameters()]  # type: ignore[union-attr]

    found = run_ranks(4, on_rank)
    assert sorted(map(any, found)) == [False, False, True, True]


@pytest.mark.parametrize("place, tp", [(Place(4, 1), 1), (Place(2, 2), 2)])
def test_blocks_give_every_rank_the_same_number_of_patches(place: Place, tp: int) -> None:
    run_ranks(4, check_same_work, place, tp, range(1, 18))


def test_nan_in_padding_reaches_no_row() -> None:
    def on_rank(rank: int) -> None:
        for count in (1, 5, 17):
            check_padding(rank, Place(4, 1), 2, images(count))

    run_ranks(4, on_rank)


def test_a_tower_that_is_not_shared_out_stays_as_it_is() -> None:
    def on_rank(rank: int) -> None:
        made = Place(4, 1).vision(4)
        tower = Tower(made.tp)
        assert made.column is None and shard(tower, made) is tower
        assert shard(tower, made, block_patches=32) is tower
        dist.barrier()

    run_ranks(4, on_rank)


def message_on_every_rank(rank: int, call: Any) -> str:
    with pytest.raises(VisionShardingError) as raised:
        call()
    return str(raised.value)


def test_what_goes_wrong_on_a_rank_is_known_to_its_column() -> None:
    def on_rank(rank: int) -> list[str]:
        made = Place(4, 1).vision(1)
        tower = Tower(made.tp)
        other = shard(tower, made)
        told = [message_on_every_rank(rank, lambda: other(**batch_of(images(5 + rank // 3))))]
        small = shard(tower, made, block_patches=16)
        told.append(message_on_every_rank(rank, lambda: small(**batch_of(images(7)))))
        if rank == 2:
            tower.merger = nn.Identity()  # type: ignore[assignment]
        told.append(message_on_every_rank(rank, lambda: shard(tower, made)(**batch_of(images(7)))))
        return told

    for told in run_ranks(4, on_rank, timeout=20):
        assert told[0].startswith("vision_tp_dp (4 replicas): the ranks see different batches on rank 0")
        assert all(message.startswith("vision_tp_dp (4 replicas): ") for message in told[1:]), told
        assert "vision_block_patches must be at least the largest image's 32, got 16" in told[1]
        assert "the encoder failed on rank 2: TypeError" in told[2]


def test_a_batch_without_images_passes_through() -> None:
    def on_rank(rank: int) -> None:
        made = Place(2, 1).vision(1)

        def call(hidden_states: Tensor, grid_thw: Tensor) -> str:
            return f"{len(grid_thw)} images"

        for room in (None, 32):
            run = encode.shard_tower(call, groups=made, merge_size=MERGE, alpha=1, modules=[], block_patches=room)
            assert run(**batch_of([])) == "0 images"

    run_ranks(2, on_rank)


def test_half_precision_is_as_near_to_fp32_as_one_rank() -> None:
    """No fixed tolerance: twice the error of the whole tower in the same precision."""

    def gradients(dtype: torch.dtype, place: Place | None, room: int | None = None) -> list[Tensor]:
        made = None if place is None else place.vision(1)
        tower = Tower(None if made is None else made.tp, dtype=dtype)
        batch = batch_of(images(7), torch.bfloat16)
        batch["hidden_states"] = batch["hidden_states"].to(dtype)
        output = (tower if made is None else shard(tower, made, block_patches=room))(**batch)
        assert levels_of(output)[0].dtype == dtype
        rank, ranks = (None, 1) if place is None else (place.cp_group.rank(), place.cp)
        objective(output, rank=rank, ranks=ranks).backward()
        if made is not None and place is not None:
            replicas.sum_replica_gradients(tower, made.replicas)
        grads = [parameter.grad.flatten().float() for parameter in tower.parameters()]  # type: ignore[union-attr]
        flat = torch.cat(grads)
        if place is not None:
            dist.all_reduce(flat, group=place.cp_group)
        return [*(level.detach().flatten().float() for level in levels_of(output)), flat]

    def on_rank(rank: int) -> None:
        exact = gradients(torch.float32, None)
        plain = gradients(torch.bfloat16, None)
        for place in (Place(4, 1), Place(2, 2)):
            for room in (None, 64):
                for ours, theirs, wanted in zip(gradients(torch.bfloat16, place, room), plain, exact, strict=True):
                    assert (ours - wanted).norm() <= 2 * (theirs - wanted).norm()

    run_ranks(4, on_rank)


def test_arguments_travel_by_position_and_by_name_and_are_not_changed() -> None:
    def on_rank(rank: int) -> None:
        made = Place(2, 1).vision(1)
        tower, given = Tower(made.tp), []

        def call(pixel_rows: Tensor, sizes: Tensor, *, scale: float = 1.0) -> Any:
            given.append(scale)
            return tower(pixel_rows, sizes)

        pixels, sizes = batch_of(images(3)).values()
        for room in (None, 32):
            run = encode.shard_tower(
                call, groups=made, merge_size=MERGE, alpha=1, modules=[tower], block_patches=room,
                pixels="pixel_rows", grid="sizes",
            )  # fmt: skip
            for output in (
                run(pixels, sizes),
                run(pixels, sizes=sizes, scale=2.0),
                run(sizes=sizes, pixel_rows=pixels),
            ):
                torch.testing.assert_close(levels_of(output)[0], reference(tuple(images(3)), all_frozen)[1][0])
                assert type(output) is tuple and type(output[1]) is list
        assert given == [1.0, 2.0, 1.0] * 2
        assert torch.equal(pixels, batch_of(images(3))["hidden_states"]) and sizes.tolist() == [*map(list, images(3))]

    run_ranks(2, on_rank)
