"""Which rank encodes which unit: integer arithmetic on run lengths, the same on every rank without talking."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import heapify, heapreplace
from itertools import accumulate, combinations, islice, repeat
from operator import mul, sub
from typing import Any, NamedTuple


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
    """What each rank owns, ascending in (run, start), and what it costs: patches * (patches + alpha) for each unit."""

    shares: tuple[tuple[Segment, ...], ...]
    loads: tuple[int, ...]


def cost_alpha(hidden: int, intermediate: int | None = None, *, gated: bool = False) -> int:
    """A tower's linear FLOPs per patch over its attention FLOPs per pair of patches, from its layer sizes."""
    mlp = hidden if intermediate is None else 3 * intermediate // 2 if gated else intermediate
    return 2 * hidden + mlp


def make_plan(runs: Sequence[Run], ranks: int, *, alpha: int, method: str = "balanced") -> Plan:
    """Give every unit to one rank, and every rank a unit while they last; ValueError for an option out of range."""
    return _make_plan(tuple(runs), ranks, alpha, method)


@lru_cache(maxsize=32)
def _make_plan(runs: tuple[Run, ...], ranks: int, alpha: int, method: str) -> Plan:
    if method not in ("balanced", "contiguous", "count"):
        raise ValueError(f"method must be balanced, contiguous or count, got {method!r}")
    patches, counts = zip(*runs) if runs else ((), ())
    given = ("ranks", ranks, 1), ("patches", min(patches, default=1), 1), ("count", min(counts, default=1), 1)
    for option, value, least in (*given, ("alpha", alpha, 0)):
        if value < least:
            raise ValueError(f"{option} must be at least {least}, got {value}")
    if not runs:
        return Plan(((),) * ranks, (0,) * ranks)
    costs = [size * (size + alpha) for size in patches]  # attention, and linear layers
    ahead = [0, *accumulate(counts)], [0, *accumulate(map(mul, costs, counts))]
    if method != "balanced":
        return _deal(costs, counts, *_cut(costs, *ahead, ranks, method))
    in_order = min((_cut(costs, *ahead, ranks, way) for way in ("contiguous", "count")), key=_peak)
    packed = _balanced(costs, counts, ranks, _peak(in_order)) or in_order
    return _deal(costs, counts, *min(in_order, packed, key=_peak))


_Found = tuple[list[dict[int, int]], list[int]]  # by rank: number of units by unit cost (0: of any), and their cost


def _peak(found: _Found) -> int:
    return max(found[1])


def _cut(costs: list[int], units: list[int], spent: list[int], ranks: int, method: str) -> _Found:
    """In order, by number or by cost; `units` and `spent`: their number and cost ahead of each run, and of all."""
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
    numbers = map(sub, [*cuts[1:], total], cuts)
    return [{0: number} for number in numbers], [*map(sub, [*ahead[1:], spent[-1]], ahead)]


def _deal(costs: list[int], counts: Sequence[int], held: list[dict[int, int]], loads: list[int]) -> Plan:
    """Hand out the runs in order to the owners of units of their cost, one rank after the other."""
    shares: list[list[Segment]] = [[] for _ in loads]
    segment = partial(tuple.__new__, Segment)  # half the time of Segment()
    costs = [0] * len(costs) if 0 in held[0] else costs
    single = max(counts) == 1  # then every unit finds its owner without a look at numbers
    owners: dict[int, list[Any]] = defaultdict(list)
    for rank in reversed(range(len(held))):
        for cost, number in held[rank].items():
            owners[cost] += [rank] * number if single else [(rank, number)] * (number > 0)
    if single:
        for cost, one in zip(costs, map(segment, zip(range(len(costs)), repeat(0), counts))):
            shares[owners[cost].pop()].append(one)
        counts = ()
    for run, (cost, count) in enumerate(zip(costs, counts)):
        left = count
        while left:
            rank, number = owners[cost].pop()
            if number > left:
                owners[cost].append((rank, number - left))
                number = left
            shares[rank].append(segment((run, count - left, number)))
            left -= number
    return Plan(tuple(map(tuple, shares)), tuple(loads))


def _balanced(costs: list[int], counts: Sequence[int], ranks: int, peak: int) -> _Found | None:
    """Near the least cost of the busiest rank; None where units in order, with that `peak`, are at the lower bound."""
    units = Counter(costs)
    for cost, count in zip(costs, counts) if max(counts) > 1 else ():
        units[cost] += count - 1
    sizes = sorted(units.items(), reverse=True)
    largest = list(islice((cost for cost, count in sizes for _ in range(count)), 4 * ranks + 1))
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


def _pack(sizes: list[tuple[int, int]], ranks: int, capacity: int) -> _Found:
    """Fill rank after rank up to capacity, largest units first; what is left goes to the least loaded, one by one."""
    held: list[dict[int, int]] = [{} for _ in range(ranks)]
    rest = dict(sizes)
    heap = []  # load * ranks + rank: an integer compares faster than a pair
    for rank, mine in enumerate(held):
        room = capacity
        for cost, count in rest.items() if capacity else ():
            if count and cost <= room:
                mine[cost] = number = min(count, room // cost)
                rest[cost] -= number
                room -= number * cost
        heap.append((capacity - room) * ranks + rank)
    heapify(heap)
    for cost, count in rest.items():
        while count:
            key = heap[0]
            mine = held[key % ranks]
            number = count // ranks or 1  # at once: one by one, none would get more than the least loaded
            mine[cost] = mine.get(cost, 0) + number
            heapreplace(heap, key + number * cost * ranks)
            count -= number
    return held, [key // ranks for key in sorted(heap, key=lambda key: key % ranks)]


def _improve(held: list[dict[int, int]], loads: list[int], goal: int) -> _Found:
    """Trade between the busiest rank and one of the least loaded until the goal is met or no trade helps."""
    for _ in range(32):
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
    return held, loads


def _bundles(mine: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """What a rank can trade at once, by cost: nothing, one unit, or two of the few it holds."""
    few = [cost for cost, number in mine.items() for _ in range(min(number, 2))]
    pairs = {sum(pair): pair for pair in combinations(few, 2)} if len(few) <= 8 else {}
    return {**pairs, **{cost: (cost,) for cost in few}, 0: ()}
