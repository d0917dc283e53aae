"""How one case's parts become a row, and how far apart two runs are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from skillgen.evals.kernel import worker
from skillgen.evals.kernel.arms import apart, apart_by_name
from skillgen.evals.kernel.context import Case, Context, Result, judge, member_lists
from skillgen.evals.kernel.families import Batch, PointwiseLM, sequence, settle_weights, zigzag
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.kernel.measure import collectives, saved_activations
from skillgen.evals.vision_dp_over_cp import cases_parity
from skillgen.evals.vision_dp_over_cp.families import names
from tests.distributed import run_ranks

CASE = Case("parity", "some", lambda: Result())


def part(**checks: tuple[float, float]) -> dict[str, Any]:
    return {"checks": checks, "numbers": {}}


@pytest.mark.parametrize(
    ("parts", "status", "words"),
    [
        ([part(a=(1, 2)), part(a=(2, 2))], "passed", ""),
        ([part(a=(1, 2)), part(a=(3, 2))], "failed", "a is 3, limit 2"),
        ([part(a=(float("nan"), 2)), part(a=(1, 2))], "failed", "a is 1e+308"),
        ([part(a=(1, 2)), {"error": "ValueError: no", "traceback": "t"}], "failed", "rank 1: ValueError: no"),
        ([part(a=(1, 2)), {"skipped": "not here"}], "skipped", "not here"),
        ([{"error": "E: e", "traceback": "t"}, {"skipped": "not here"}], "failed", "rank 0: E: e"),
    ],
)
def test_the_worst_rank_decides(parts: list[dict[str, Any]], status: str, words: str) -> None:
    row = judge(CASE, parts, 0.1)
    assert row["status"] == status and words in row["reason"]


def test_groups_of_neighbours_and_strided_groups() -> None:
    assert member_lists(4, 2, "blocks") == [[0, 1], [2, 3]]
    assert member_lists(4, 2, "strided") == [[0, 2], [1, 3]]


def test_distance_counts_nan_and_refuses_other_shapes() -> None:
    one, nan = torch.ones(2), torch.tensor([1.0, float("nan")])
    assert apart([one], [one]) == 0 and apart([one * 1.5], [one]) == 0.5
    assert not apart([nan], [one]) <= 1e9
    assert not apart_by_name({"p": nan}, {"p": one}) <= 1e9
    with pytest.raises(ValueError, match="shapes differ"):
        apart([torch.ones(3)], [one])
    with pytest.raises(ValueError, match="parameters differ"):
        apart_by_name({}, {"p": one})


def test_a_small_parameter_counts_on_its_own_scale() -> None:
    want = {"large": torch.full((2,), 1.0), "small": torch.full((2,), 0.01)}
    assert apart_by_name(want | {"small": torch.full((2,), 0.02)}, want) == pytest.approx(1.0)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_zigzag_deals_every_position_once(ranks: int) -> None:
    dealt = torch.cat([zigzag(32, ranks, rank) for rank in range(ranks)])
    assert sorted(dealt.tolist()) == list(range(32))


def test_sequence_has_the_blocks_and_room_for_eight_ranks() -> None:
    ids, labels, mask = sequence([(100, 5), (101, 7)], seed=1)
    assert ids.shape == labels.shape == mask.shape and ids.shape[1] % 16 == 0
    assert int((ids == 100).sum()) == 5 and int((ids == 101).sum()) == 7


def test_weights_are_the_same_everywhere() -> None:
    models = [PointwiseLM(8), PointwiseLM(8)]
    for model in models:
        settle_weights(model, 3)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_saved_activations_count_each_storage_once_and_no_parameter() -> None:
    layer = torch.nn.Linear(4, 4)
    x = torch.ones(2, 4, requires_grad=True)
    with saved_activations(layer) as saved:
        hidden = layer(x)
        (hidden * hidden + hidden.exp()).sum().backward()
    assert saved() == 3 * 2 * 4 * 4  # the input, hidden (used twice), its exponential


def _counted(rank: int) -> tuple[list[str], list[tuple[int, int]], bool]:
    import torch.distributed as dist

    before = dist.all_reduce
    with collectives() as traffic:
        dist.all_reduce(torch.ones(3))
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, rank)
        dist.all_gather_into_tensor(torch.empty(4), torch.ones(2))
    return traffic.calls, traffic.bytes, dist.all_reduce is before


def test_collectives_are_counted_once_with_their_bytes() -> None:
    for calls, sizes, restored in run_ranks(2, _counted):
        assert calls == ["all_reduce", "all_gather_object", "all_gather_into_tensor"] and restored
        assert sizes[0] == (12, 0) and sizes[2] == (16, 8)


def test_families_are_found_by_walking() -> None:
    assert {"ministral3", "qwen3_omni", "nemotron_omni", "minimax_m3"} <= set(names())


def unpatched(error: Exception) -> None:
    """What the suite makes of a model that raises with the flag off."""

    def model(*args: Any, **kwargs: Any) -> None:
        raise error

    harness = SimpleNamespace(optional=("flash_attn",))
    context: Any = SimpleNamespace(
        layout=lambda cp: None, cp_sizes=lambda: [2], device="cpu", model=model, harness=harness
    )
    batch = Batch({}, (), torch.zeros(1, 1), torch.zeros(1, 1), 0, 1)
    family: Any = SimpleNamespace(batch=lambda items, seed: batch)
    cases_parity.require_replicated(context, family)


def test_a_model_that_lacks_a_declared_package_is_skipped_with_its_name() -> None:
    with pytest.raises(Skip, match="flash_attn is not here"):
        unpatched(ModuleNotFoundError("No module named 'flash_attn.ops'", name="flash_attn.ops"))
    with pytest.raises(Skip, match="no such tower"):
        unpatched(Skip("no such tower"))


@pytest.mark.parametrize("error", [TypeError("unexpected keyword"), ImportError("no name", name="my_package")])
def test_an_error_of_the_family_itself_is_no_absence(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        unpatched(error)


class Toy:
    """A family of one variant that raises on one rank, as it is built or as it first runs."""

    variants = ("",)

    def __init__(self, harness: Any, variant: str) -> None:
        if harness.when == "built" and dist.get_rank() == harness.where:
            raise harness.error


def prepared_on(rank: int, when: str, where: int, error: Exception) -> dict[str, Any]:
    harness = SimpleNamespace(when=when, where=where, error=error)
    context = Context(harness, {"backend": "gloo", "limit": 5})

    def require(context: Context, family: Toy) -> None:
        if when == "run" and rank == where:
            raise error

    family, row = worker.prepared(SimpleNamespace(require=require), context, Toy, "", None)
    assert (family is None) == (row["status"] != "passed")
    return row


@pytest.mark.parametrize("when", ["built", "run"])
def test_a_family_that_raises_is_a_failed_row_with_its_traceback_on_every_rank(when: str) -> None:
    for row in run_ranks(2, prepared_on, when, 1, ZeroDivisionError("no such luck")):
        assert (row["kind"], row["status"]) == ("all", "failed")
        assert row["reason"] == "rank 1: ZeroDivisionError: no such luck" and "raise" in row["traceback"]


def test_a_family_that_cannot_be_judged_on_one_rank_is_skipped_on_every() -> None:
    rows = run_ranks(2, prepared_on, "run", 0, Skip("no tower here"))
    assert [(row["status"], row["reason"]) for row in rows] == [("skipped", "no tower here")] * 2
    assert [row["status"] for row in run_ranks(2, prepared_on, "never", 0, Skip(""))] == ["passed"] * 2
