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
    if ranks < 1:
        raise ValueError(f"ranks must be at least 1, got {ranks}")
    if alpha < 0:
        raise ValueError(f"alpha must be at least 0, got {alpha}")
    if not runs:
        return Plan(((),) * ranks, (0,) * ranks)
    patches, counts = zip(*runs, strict=True)
    if min(patches) < 1 or min(counts) < 1:
        raise ValueError(f"patches and count of a run must be at least 1, got {min(patches)} and {min(counts)}")
    line = _Line.of([unit_cost(size, alpha) for size in patches], counts)
    if method == "balanced":
        return _balanced(line, ranks)
    return _in_order(line, *_cut(line, ranks, method))


_Table = dict[int, dict[int, int]]  # number of units per unit cost and rank


class _Line(NamedTuple):
    """The runs in order, with the units and the cost ahead of each, and of the end."""

    costs: list[int]
    counts: tuple[int, ...]
    units: list[int]
    spent: list[int]

    @classmethod
    def of(cls, costs: list[int], counts: tuple[int, ...]) -> _Line:
        return cls(costs, counts, [0, *accumulate(counts)], [0, *accumulate(map(mul, costs, counts))])


def _cut(line: _Line, ranks: int, method: str) -> tuple[list[int], list[int]]:
    """Units and cost per rank in order: equal numbers, remainder last, or cut where the cost reaches equal parts."""
    units, total = line.units[-1], line.spent[-1]
    cuts, ahead = [0], [0]
    for rank in range(1, ranks):
        if method == "count" or units < ranks:
            cut = min(max(units // ranks, 1) * rank, units)
        else:
            target = total * rank // ranks
            run = bisect_right(line.spent, target) - 1
            cut = line.units[run] + (target - line.spent[run]) // line.costs[run]
            cut = min(max(cut, cuts[-1] + 1), units - ranks + rank)
        run = bisect_left(line.units, cut) - 1
        cuts.append(cut)
        ahead.append(line.spent[run] + (cut - line.units[run]) * line.costs[run])
    return [*map(sub, [*cuts[1:], units], cuts)], [*map(sub, [*ahead[1:], total], ahead)]


def _in_order(line: _Line, numbers: list[int], loads: list[int]) -> Plan:
    owners = {rank: numbers[rank] for rank in reversed(range(len(numbers))) if numbers[rank]}
    return _deal(line, dict.fromkeys(line.costs, owners), loads)


def _deal(line: _Line, table: _Table, loads: list[int]) -> Plan:
    """Hand out the runs in order to the owners of units of their cost, and use the table up."""
    shares: list[list[Segment]] = [[] for _ in loads]
    segment = partial(tuple.__new__, Segment)  # half the time of Segment()
    for run, (cost, count) in enumerate(zip(line.costs, line.counts, strict=True)):
        left, owners = count, table[cost]
        while left:
            rank, number = owners.popitem()
            if number > left:
                owners[rank] = number - left
                number = left
            shares[rank].append(segment((run, count - left, number)))
            left -= number
    return Plan(tuple(map(tuple, shares)), tuple(loads))


def _balanced(line: _Line, ranks: int) -> Plan:
    """Near the least cost of the busiest rank; in order where that is no worse, for fewer segments."""
    in_order = min(_cut(line, ranks, "contiguous"), _cut(line, ranks, "count"), key=_peak)
    sizes = dict.fromkeys(sorted(line.costs, reverse=True), 0)
    for cost, count in zip(line.costs, line.counts, strict=True):
        sizes[cost] += count
    least = _lower_bound(sizes, ranks, line.spent[-1])
    if _peak(in_order) == least:
        return _in_order(line, *in_order)

    goal = least + least // 1024  # what is left to gain then is less than the time to find it
    best = _improve(*_pack(sizes, ranks, 0), goal)
    for part in (32, 16, 8) if line.units[-1] < 32 * ranks else ():
        if _peak(best) <= goal:
            break
        other = _improve(*_pack(sizes, ranks, least + least // part), goal)
        if all(other[1]):
            best = min(best, other, key=_peak)
    return _in_order(line, *in_order) if _peak(in_order) <= _peak(best) else _deal(line, *best)


def _peak(found: tuple[object, list[int]]) -> int:
    return max(found[1])


def _lower_bound(sizes: dict[int, int], ranks: int, total: int) -> int:
    """The mean, or the least k + 1 of the k * ranks + 1 largest units: some rank holds as many of these."""
    largest = list(islice((cost for cost, count in sizes.items() for _ in range(count)), 4 * ranks + 1))
    return max(-(-total // ranks), *(sum(largest[at - at // ranks : at + 1]) for at in range(0, len(largest), ranks)))


def _pack(sizes: dict[int, int], ranks: int, capacity: int) -> tuple[_Table, list[int]]:
    """Fill rank after rank up to capacity, largest units first; what is left goes to the least loaded, one by one."""
    table: _Table = {cost: {} for cost in sizes}
    heap = []  # load * ranks + rank: an integer compares faster than a pair
    rest = dict(sizes)
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
        owners, step = table[cost], cost * ranks
        if count > ranks:  # the same in bulk, up to the level that the lower ranks reach together
            heap.sort()
            below = ranks
            while (level := (sum(heap[:below]) + step * count) // below) < heap[below - 1]:
                below -= 1
            for at, key in enumerate(heap[:below]):
                if number := (level - key) // step:
                    owners[key % ranks] = owners.get(key % ranks, 0) + number
                    heap[at] += number * step
                    count -= number
            heapify(heap)
        while count:
            key = heap[0]
            owners[key % ranks] = owners.get(key % ranks, 0) + 1
            heapreplace(heap, key + step)
            count -= 1
    return table, [key // ranks for key in sorted(heap, key=lambda key: key % ranks)]


def _improve(table: _Table, loads: list[int], goal: int) -> tuple[_Table, list[int]]:
    """Trade between the busiest rank and one of the least loaded until the goal is met or no trade helps."""
    if max(loads) <= goal:
        return table, loads
    held = _transposed(table)
    for _ in range(32):
        top = max(loads)
        if top <= goal:
            break
        busy = loads.index(top)
        gives = _bundles(held[busy])
        for rank in sorted(range(len(loads)), key=loads.__getitem__)[:2]:
            takes = _bundles(held[rank])
            best = gap = top - loads[rank]
            prices = sorted(takes)
            for give in gives:
                at = bisect_left(prices, give - gap // 2)
                for take in prices[max(at - 1, 0) : at + 1]:
                    if abs(2 * (give - take) - gap) < best:
                        best, trade = abs(2 * (give - take) - gap), (give, take)
            if best < gap:
                break
        else:
            break
        give, take = trade
        for source, target, bundle in ((busy, rank, gives[give]), (rank, busy, takes[take])):
            for cost in bundle:
                held[source][cost] -= 1
                held[target][cost] = held[target].get(cost, 0) + 1
        loads[busy] += take - give
        loads[rank] += give - take
    return _transposed(held), loads


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
