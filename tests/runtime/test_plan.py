"""The planner: what each method gives each rank, and what no plan may break."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillgen.evals.kernel import rules
from skillgen.runtime import plan as module
from skillgen.runtime.plan import Plan, Run, Segment, _make_plan, cost_alpha, make_plan


def unit_cost(patches: int, alpha: int) -> int:
    return patches * (patches + alpha)


def owned(plan: Plan) -> list[list[tuple[int, int]]]:
    """Per rank, its units as (run, index in the run), in the order of its segments."""
    return [[(s.run, s.start + i) for s in share for i in range(s.count)] for share in plan.shares]


def longest_first(runs: list[Run], ranks: int, alpha: int, *, by_patches: bool = False) -> int:
    """Busiest rank where each unit, largest first, goes to the one of least cost, or of least patches."""
    held = [(0, rank, 0) for rank in range(ranks)]
    for patches in sorted((run.patches for run in runs for _ in range(run.count)), reverse=True):
        cost = unit_cost(patches, alpha)
        weight, rank, load = held[0]
        heapq.heapreplace(held, (weight + (patches if by_patches else cost), rank, load + cost))
    return max(load for _, _, load in held)


@pytest.mark.parametrize(
    ("patches", "ranks", "counts"),
    [
        pytest.param([], 2, [0, 0], id="empty"),
        pytest.param([7], 1, [1], id="one-rank"),
        pytest.param([7, 7], 4, [1, 1, 0, 0], id="fewer-than-ranks"),
        pytest.param([7] * 5, 2, [2, 3], id="remainder-on-the-last"),
        pytest.param([7] * 15, 8, [1] * 7 + [8], id="remainder-heaped"),
    ],
)
def test_count_ignores_sizes(patches: list[int], ranks: int, counts: list[int]) -> None:
    plan = rules.in_order(module, [Run(p) for p in patches], ranks, alpha=3, method="count")
    assert [len(units) for units in owned(plan)] == counts


@pytest.mark.parametrize(
    ("patches", "ranks", "counts"),
    [
        pytest.param([], 2, [0, 0], id="empty"),
        pytest.param([7], 1, [1], id="one-rank"),
        pytest.param([7, 7], 4, [1, 1, 0, 0], id="fewer-than-ranks"),
        pytest.param([8, 4, 4], 2, [1, 2], id="cut-at-half-the-cost"),
        pytest.param([1, 1, 90], 3, [1, 1, 1], id="large-last"),
        pytest.param([90, 1, 1], 3, [1, 1, 1], id="large-first"),
    ],
)
def test_contiguous_cuts_by_cost(patches: list[int], ranks: int, counts: list[int]) -> None:
    plan = rules.in_order(module, [Run(p) for p in patches], ranks, alpha=0, method="contiguous")
    assert [len(units) for units in owned(plan)] == counts


@pytest.mark.parametrize(
    ("patches", "ranks", "loads"),
    [
        pytest.param([], 2, [0, 0], id="empty"),
        pytest.param([2], 1, [4], id="one-rank"),
        pytest.param([2, 3], 4, [0, 0, 4, 9], id="fewer-than-ranks"),
        pytest.param([9, 1, 1, 1], 2, [3, 81], id="skewed"),
        pytest.param([1, 9, 1, 9], 2, [82, 82], id="out-of-order"),
        pytest.param([5, 1, 5, 1, 5, 1, 5, 1], 4, [26] * 4, id="interleaved"),
        pytest.param([4, 9, 11, 5, 7, 6], 2, [162, 166], id="two-for-one"),
    ],
)
def test_balanced_loads(patches: list[int], ranks: int, loads: list[int]) -> None:
    assert sorted(make_plan([Run(p) for p in patches], ranks, alpha=0).loads) == loads


def test_a_long_video_is_cut_in_order() -> None:
    plan = make_plan([Run(256, 4096)], 3, alpha=10)
    assert plan.shares == ((Segment(0, 0, 1366),), (Segment(0, 1366, 1365),), (Segment(0, 2731, 1365),))


def test_frames_fill_up_beside_large_images() -> None:
    plan = make_plan([Run(8), Run(2, 40), Run(8)], 4, alpha=0)
    assert plan.loads == (72, 72, 72, 72)
    assert sum(len(share) for share in plan.shares) <= 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": 0}, "ranks, .* must be >= 1, .* got 0, "),
        ({"alpha": -1}, "alpha >= 0, got .*, -1"),
        ({"runs": [Run(4), Run(0)]}, "patches, .* must be >= 1, .*patches=0"),
        ({"runs": [Run(4, 0)]}, "counts must be >= 1, .*count=0"),
        ({"runs": [Run(4, 1), Run(16, 0)]}, "counts must be >= 1, .*patches=16, count=0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_option_out_of_range(change: dict[str, object], message: str) -> None:
    options = {"runs": [Run(4)], "ranks": 2, "alpha": 0, **change}
    with pytest.raises(ValueError, match=message):
        make_plan(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "gated", "alpha"),
    [((1280,), False, 3840), ((1280,), True, 3840), ((1280, 5120), False, 7680), ((1024, 4096), True, 8192)],
)
def test_alpha_of_a_tower(sizes: tuple[int, ...], gated: bool, alpha: int) -> None:
    assert cost_alpha(*sizes, gated=gated) == alpha


def test_cost_is_attention_and_linear_work() -> None:
    assert make_plan([Run(256)], 1, alpha=3840).loads == (256 * 256 + 256 * 3840,)


few_sizes = st.sampled_from([1, 2, 3, 9, 36, 64, 144])
runs_of = st.lists(st.builds(Run, few_sizes | st.integers(1, 400), st.integers(1, 40) | st.just(1)), max_size=24)


@settings(deadline=None, max_examples=60)
@given(runs_of, st.integers(1, 9), st.sampled_from(rules.METHODS), st.integers(0, 500))
def test_every_unit_once_in_order_and_no_rank_without(runs: list[Run], ranks: int, method: str, alpha: int) -> None:
    plan = rules.planner(module, method)(runs, ranks, alpha=alpha)
    units = owned(plan)
    everything = [(index, unit) for index, run in enumerate(runs) for unit in range(run.count)]
    assert sorted(unit for share in units for unit in share) == everything
    assert all(share == sorted(share) for share in units)
    assert all(s.count >= 1 for share in plan.shares for s in share)
    assert all(len({s.run for s in share}) == len(share) for share in plan.shares)
    assert sum(map(bool, units)) == min(len(everything), ranks)
    assert plan.loads == tuple(sum(unit_cost(runs[run].patches, alpha) for run, _ in share) for share in units)


@settings(deadline=None, max_examples=200)
@given(runs_of, st.integers(1, 9), st.integers(0, 500))
def test_balanced_is_never_worse(runs: list[Run], ranks: int, alpha: int) -> None:
    busiest = max(make_plan(runs, ranks, alpha=alpha).loads)
    others = [
        max(rules.in_order(module, runs, ranks, alpha=alpha, method=method).loads) for method in rules.METHODS[1:]
    ]
    others += [longest_first(runs, ranks, alpha), longest_first(runs, ranks, alpha, by_patches=True)]
    assert busiest <= min(others)


@settings(deadline=None, max_examples=60)
@given(runs_of, st.integers(1, 9), st.sampled_from(rules.METHODS))
def test_equal_units_cost_the_same_listed_or_counted(runs: list[Run], ranks: int, method: str) -> None:
    listed = [Run(run.patches) for run in runs for _ in range(run.count)]
    plan = rules.planner(module, method)
    assert plan(listed, ranks, alpha=5).loads == plan(runs, ranks, alpha=5).loads


@settings(deadline=None, max_examples=60)
@given(runs_of, st.integers(1, 9))
def test_planning_twice_gives_the_same(runs: list[Run], ranks: int) -> None:
    first = make_plan(runs, ranks, alpha=5)
    _make_plan.cache_clear()
    assert make_plan(list(runs), ranks, alpha=5) == first
