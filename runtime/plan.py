"""Which rank encodes which unit: integer arithmetic on run lengths, the same on every rank without talking."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import heapify, heapreplace
from itertools import accumulate, combinations, islice
from operator import mul, sub
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


@dataclass(frozen=True)
class Plan:
    """What each rank owns, ascending in (run, start), and what it costs by `unit_cost`."""

    shares: tuple[tuple[Segment, ...], ...]
    loads: tuple[int, ...]


def unit_cost(patches: int, alpha: int) -> int:
    """Relative work of one unit: attention grows with the square of its patches, linear layers with `alpha` each."""
    return patches * (patches + alpha)


def cost_alpha(hidden: int, intermediate: int | None = None, *, gated: bool = False) -> int:
    """A tower's linear FLOPs per patch over its attention FLOPs per pair of patches, from its layer sizes."""
    if intermediate is None:
        return 3 * hidden
    return 2 * hidden + (3 * intermediate // 2 if gated else intermediate)


def make_plan(runs: Sequence[Run], ranks: int, *, alpha: int, method: str = "balanced") -> Plan:
    """Give every unit to one rank, and every rank a unit while they last; ValueError for an option out of range."""
    return _make_plan(tuple(runs), ranks, alpha, method)


@lru_cache(maxsize=32)
def _make_plan(runs: tuple[Run, ...], ranks: int, alpha: int, method: str) -> Plan:
    if method not in ("balanced", "contiguous", "count"):
        raise ValueError(f"method must be balanced, contiguous or count, got {method!r}")
    patches, counts = [size for size, _ in runs], [count for _, count in runs]
    for option, value in (("ranks", ranks), ("patches", min(patches, default=1)), ("count", min(counts, default=1))):
        if value < 1:
            raise ValueError(f"{option} must be at least 1, got {value}")
    if alpha < 0:
        raise ValueError(f"alpha must be at least 0, got {alpha}")
    if not runs:
        return Plan(((),) * ranks, (0,) * ranks)
    costs = [unit_cost(size, alpha) for size in patches]
    ahead = [0, *accumulate(counts)], [0, *accumulate(map(mul, costs, counts))]
    if method != "balanced":
        return _deal(costs, counts, *_cut(costs, *ahead, ranks, method))
    in_order = min((_cut(costs, *ahead, ranks, way) for way in ("contiguous", "count")), key=_peak)
    packed = _balanced(costs, counts, ranks, _peak(in_order)) or in_order
    return _deal(costs, counts, *min(in_order, packed, key=_peak))


_Table = dict[int, dict[int, int]]  # number of units by unit cost and rank, or by rank and unit cost


def _peak(found: tuple[_Table, list[int]]) -> int:
    return max(found[1])


def _cut(costs: list[int], units: list[int], spent: list[int], ranks: int, method: str) -> tuple[_Table, list[int]]:
    """In order: equal numbers of units with the remainder last, or cuts where the cost reaches equal parts.

    `units` and `spent` are the number and the cost of the units ahead of each run, and of all.
    """
    total, cuts, ahead = units[-1], [0], [0]
    for rank in range(1, ranks):
        if method == "count" or total < ranks:
            cut = min(max(total // ranks, 1) * rank, total)
        else:
            target = spent[-1] * rank // ranks
            run = bisect_right(spent, target) - 1
            cut = units[run] + (target - spent[run]) // costs[run]
            cut = min(max(cut, cuts[-1] + 1), total - ranks + rank)
        run = bisect_left(units, cut) - 1
        cuts.append(cut)
        ahead.append(spent[run] + (cut - units[run]) * costs[run])
    numbers = [*map(sub, [*cuts[1:], total], cuts)]
    owners = {rank: numbers[rank] for rank in reversed(range(ranks)) if numbers[rank]}
    return dict.fromkeys(costs, owners), [*map(sub, [*ahead[1:], spent[-1]], ahead)]


def _deal(costs: list[int], counts: list[int], table: _Table, loads: list[int]) -> Plan:
    """Hand out the runs in order to the owners of units of their cost, last owner first, and use the table up."""
    shares: list[list[Segment]] = [[] for _ in loads]
    segment = partial(tuple.__new__, Segment)  # half the time of Segment()
    for run, (cost, count) in enumerate(zip(costs, counts)):
        left, owners = count, table[cost]
        while left:
            rank, number = owners.popitem()
            if number > left:
                owners[rank] = number - left
                number = left
            shares[rank].append(segment((run, count - left, number)))
            left -= number
    return Plan(tuple(map(tuple, shares)), tuple(loads))


def _balanced(costs: list[int], counts: list[int], ranks: int, peak: int) -> tuple[_Table, list[int]] | None:
    """Near the least cost of the busiest rank; None where units in order, with that `peak`, are at the lower bound."""
    sizes = dict.fromkeys(sorted(costs, reverse=True), 0)
    for cost, count in zip(costs, counts):
        sizes[cost] += count
    largest = list(islice((cost for cost, count in sizes.items() for _ in range(count)), 4 * ranks + 1))
    # The mean, or the least k + 1 of the k * ranks + 1 largest units: some rank holds as many of these.
    least = max(sum(largest[at - at // ranks : at + 1]) for at in range(0, len(largest), ranks))
    least = max(least, -(-sum(map(mul, costs, counts)) // ranks))
    if peak == least:
        return None
    goal = least + least // 1024  # what is left to gain then is less than the time to find it
    best = _improve(*_pack(sizes, ranks, 0), goal)
    for part in (32, 16, 8) if sum(counts) < 32 * ranks else ():
        if _peak(best) > goal:
            other = _improve(*_pack(sizes, ranks, least + least // part), goal)
            if min(other[1]) and _peak(other) < _peak(best):
                best = other
    return best


def _pack(sizes: dict[int, int], ranks: int, capacity: int) -> tuple[_Table, list[int]]:
    """Fill rank after rank up to capacity, largest units first; what is left goes to the least loaded, one by one."""
    table: _Table = {cost: {} for cost in sizes}
    rest = dict(sizes)
    heap = []  # load * ranks + rank: an integer compares faster than a pair
    for rank in range(ranks):
        room = capacity
        for cost, count in rest.items() if capacity else ():
            if count and cost <= room:
                table[cost][rank] = number = min(count, room // cost)
                rest[cost] -= number
                room -= number * cost
        heap.append((capacity - room) * ranks + rank)
    heapify(heap)
    for cost, count in rest.items():
        owners = table[cost]
        while count:
            number = count // (2 * ranks) or 1  # at once; too few to pass the level that one by one would reach
            key = heap[0]
            owners[key % ranks] = owners.get(key % ranks, 0) + number
            heapreplace(heap, key + number * cost * ranks)
            count -= number
    return table, [key // ranks for key in sorted(heap, key=lambda key: key % ranks)]


def _improve(table: _Table, loads: list[int], goal: int) -> tuple[_Table, list[int]]:
    """Trade between the busiest rank and one of the least loaded until the goal is met or no trade helps."""
    held = _transposed(table) if max(loads) > goal else {}
    for _ in range(32 if held else 0):
        busy = loads.index(max(loads))
        gives, trade = _bundles(held[busy]), None
        for rank in sorted(range(len(loads)), key=loads.__getitem__)[:2] if loads[busy] > goal else ():
            takes, best = _bundles(held[rank]), loads[busy] - loads[rank]
            prices, gap = sorted(takes), best
            for give in gives:
                at = bisect_left(prices, give - gap // 2)
                for take in prices[max(at - 1, 0) : at + 1]:
                    if abs(2 * (give - take) - gap) < best:
                        best, trade = abs(2 * (give - take) - gap), (rank, give, take, takes[take])
            if trade:
                break
        if not trade:
            break
        rank, give, take, taken = trade
        for source, target, bundle in ((busy, rank, gives[give]), (rank, busy, taken)):
            for cost in bundle:
                held[source][cost] -= 1
                held[target][cost] = held[target].get(cost, 0) + 1
        loads[busy] += take - give
        loads[rank] += give - take
    return _transposed(held) if held else table, loads


def _transposed(table: _Table) -> _Table:
    turned: _Table = defaultdict(dict)
    for outer, numbers in table.items():
        for inner, number in numbers.items():
            if number:
                turned[inner][outer] = number
    return turned


def _bundles(mine: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """What a rank can trade at once, by cost: nothing, one unit, or two of the few it holds."""
    few = [cost for cost, number in mine.items() for _ in range(min(number, 2))]
    pairs = {sum(pair): pair for pair in combinations(few, 2)} if len(few) <= 8 else {}
    return {**pairs, **{cost: (cost,) for cost in few}, 0: ()}
