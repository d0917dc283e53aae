"""Simpler rules of planning, to compare with: units in order, cut by their number or by their cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import Any

METHODS = ("balanced", "contiguous", "count")


def planner(module: Any, method: str) -> Callable[..., Any]:
    """`make_plan` of the runtime's module, or another that takes and returns the same."""
    if method == "balanced":
        make_plan: Callable[..., Any] = module.make_plan
        return make_plan
    return lambda runs, ranks, *, alpha: in_order(module, runs, ranks, alpha=alpha, method=method)


def in_order(module: Any, runs: Sequence[Any], ranks: int, *, alpha: int, method: str) -> Any:
    """A plan by `count`, the remainder on the last rank, or `contiguous`, cut at equal parts of the cost."""
    units = [
        (run, at, patches * (patches + alpha)) for run, (patches, count) in enumerate(runs) for at in range(count)
    ]
    bounds = _bounds([cost for _, _, cost in units], ranks, method)
    shares, loads = [], []
    for start, end in zip(bounds, [*bounds[1:], len(units)], strict=True):
        groups = [list(group) for _, group in groupby(units[start:end], key=lambda unit: unit[0])]
        shares.append(tuple(module.Segment(group[0][0], group[0][1], len(group)) for group in groups))
        loads.append(sum(cost for _, _, cost in units[start:end]))
    return module.Plan(tuple(shares), tuple(loads))


def _bounds(costs: Sequence[int], ranks: int, method: str) -> list[int]:
    """Where each rank begins; with fewer units than ranks the first ones get one each."""
    if len(costs) < ranks:
        return [min(rank, len(costs)) for rank in range(ranks)]
    if method == "count":
        return [len(costs) // ranks * rank for rank in range(ranks)]
    total, bounds = [*accumulate(costs)], [0]
    for rank in range(1, ranks):
        bound = bisect_right(total, total[-1] * rank // ranks)
        bounds.append(min(max(bound, bounds[-1] + 1), len(costs) - ranks + rank))
    return bounds
