"""Assign the units of a batch to ranks: integer arithmetic, with the same result on every rank without talking."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import heapreplace
from itertools import accumulate, combinations, groupby, pairwise
from typing import NamedTuple


class Run(NamedTuple):
    """`count` equal units in a row, of `patches` patches each: an image (1), or a video of `count` units."""

    patches: int
    count: int = 1  # type: ignore[assignment]  # hides tuple.count


class Segment(NamedTuple):
    """Units [start, start + count) of runs[run]."""

    run: int
    start: int
    count: int  # type: ignore[assignment]


class Plan(NamedTuple):
    """Each rank's segments, ascending in (run, start), and its load: the sum of the costs of its units."""

    shares: tuple[tuple[Segment, ...], ...]
    loads: tuple[int, ...]


def cost_alpha(hidden: int, intermediate: int | None = None, *, gated: bool = False) -> int:
    """A tower's linear FLOPs per patch over its attention FLOPs per pair of patches, from its layer sizes."""
    return 2 * hidden + (hidden if intermediate is None else 3 * intermediate // 2 if gated else intermediate)


def make_plan(runs: Sequence[Run], ranks: int, *, alpha: int) -> Plan:
    """Give every unit to one rank, and every rank a unit while they last, so that the largest load is small.

    A unit of p patches costs p * (p + alpha), see `cost_alpha`. Raises ValueError for a number out of range.
    """
    return _make_plan(tuple(runs), ranks, alpha)


@lru_cache(maxsize=32)
def _make_plan(runs: tuple[Run, ...], ranks: int, alpha: int) -> Plan:
    least = min(runs, key=min, default=Run(1))
    if ranks < 1 or alpha < 0 or min(least) < 1:
        raise ValueError(f"ranks, patches, counts must be >= 1, alpha >= 0, got {ranks}, {least}, {alpha}")
    costs = [patches * (patches + alpha) for patches, count in runs for _ in range(count)]
    sizes = {patches * (patches + alpha): patches for patches, _ in runs}
    candidates = [_longest_first(costs, ranks, weights) for weights in ({cost: cost for cost in sizes}, sizes)]
    candidates += _in_order(costs, ranks) if len(costs) >= ranks else []
    held = _trade(min(candidates, key=lambda held: max(map(sum, held))))
    owners = defaultdict(list)  # of the units of each cost, the first one last
    for rank in reversed(range(ranks)):
        for cost in held[rank]:
            owners[cost].append(rank)
    shares: list[list[Segment]] = [[] for _ in held]
    for index, (patches, count) in enumerate(runs):
        start = 0
        for rank, units in groupby(owners[patches * (patches + alpha)].pop() for _ in range(count)):
            shares[rank].append(Segment(index, start, len(list(units))))
            start += shares[rank][-1].count
    return Plan(tuple(map(tuple, shares)), tuple(map(sum, held)))


def _longest_first(costs: list[int], ranks: int, weights: Mapping[int, int]) -> list[list[int]]:
    """Costs by rank: the largest unit first, each to the rank of least weight so far."""
    held: list[list[int]] = [[] for _ in range(ranks)]
    heap = [(0, rank) for rank in range(ranks)]
    for cost in sorted(costs, reverse=True):
        weight, rank = heap[0]
        held[rank].append(cost)
        heapreplace(heap, (weight + weights[cost], rank))
    return held


def _in_order(costs: list[int], ranks: int) -> list[list[list[int]]]:
    """Units in order, twice: cut by their number, the remainder on the last rank, and by their cost so far."""
    total, cuts = [*accumulate(costs)], [0]
    for rank in range(1, ranks):
        cuts.append(min(max(bisect_right(total, total[-1] * rank // ranks), cuts[-1] + 1), len(costs) - ranks + rank))
    by_count = [len(costs) // ranks * rank for rank in range(ranks)]
    return [[costs[i:j] for i, j in pairwise([*bounds, len(costs)])] for bounds in (by_count, cuts)]


def _trade(held: list[list[int]]) -> list[list[int]]:
    """Trade bundles of the busiest rank with one of the four least loaded, while it is 0.1 % above the mean."""
    loads, limit = [*map(sum, held)], 1001 * sum(map(sum, held)) // (1000 * len(held))
    for _ in range(32):
        largest, busiest = max((load, rank) for rank, load in enumerate(loads))
        best, gives = (largest, 0, 0, 0), _bundles(held[busiest])
        for load, rank in sorted((load, rank) for rank, load in enumerate(loads) if largest > limit)[:4]:
            takes = sorted(_bundles(held[rank]))
            for give in gives:
                at = bisect_left(takes, give - (largest - load) // 2)
                for take in takes[max(at - 1, 0) : at + 1]:
                    best = min(best, (max(largest - give + take, load + give - take), rank, give, take))
        _, rank, give, take = best
        if not give:
            break
        for source, target, bundle in ((busiest, rank, gives[give]), (rank, busiest, _bundles(held[rank])[take])):
            for cost in bundle:
                held[source].remove(cost)
                held[target].append(cost)
        loads[busiest], loads[rank] = largest - give + take, loads[rank] + give - take
    return held


def _bundles(costs: list[int]) -> dict[int, tuple[int, ...]]:
    """What a rank can trade, by cost: nothing, one unit, or two where it holds few."""
    sizes = (2, 1, 0) if len(costs) <= 16 else (1, 0)
    return {sum(bundle): bundle for size in sizes for bundle in combinations(costs, size)}
