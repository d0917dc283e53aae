"""Who belongs to which group, where each chunk lies and what is sent: plain arithmetic, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

SPLITS = ((2, 2), (4, 2), (2, 4))  # (inner all-to-all, outer ring)


@dataclass(frozen=True)
class Shape:
    """One layout of a world, in megatron-core's order of ranks: tp fastest, then cp, dp, pp."""

    tp: int
    inner: int
    outer: int
    dp: int = 1
    pp: int = 1
    offset: int = 0  # the first rank of the grid; earlier ranks stand outside

    @property
    def cp(self) -> int:
        return self.inner * self.outer

    @property
    def sizes(self) -> list[int]:
        return [self.inner, self.outer]

    @property
    def world(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    def __str__(self) -> str:
        others = [f"{name.upper()} {getattr(self, name)}" for name in ("tp", "dp", "pp") if getattr(self, name) > 1]
        offset = [f"offset {self.offset}"] if self.offset else []
        return ", ".join([f"CP {self.cp} [{self.inner},{self.outer}]", *others, *offset])


def shapes(world: int) -> Iterator[Shape]:
    """Every layout of a world whose TP and PP are 1 or 2; DP takes the rest."""
    for (inner, outer), tp, pp in product(SPLITS, (1, 2), (1, 2)):
        if world % (tp * inner * outer * pp) == 0:
            yield Shape(tp, inner, outer, world // (tp * inner * outer * pp), pp)


def cp_ranks(shape: Shape) -> list[list[int]]:
    """The CP groups, each as its ranks in the order of the sequence shards."""
    strides = {"tp": 1, "cp": shape.tp, "dp": shape.tp * shape.cp, "pp": shape.tp * shape.cp * shape.dp}
    others = product(range(shape.pp), range(shape.dp), range(shape.tp))
    firsts = [shape.offset + pp * strides["pp"] + dp * strides["dp"] + tp for pp, dp, tp in others]
    return [[first + i * strides["cp"] for i in range(shape.cp)] for first in firsts]


def levels(ranks: Sequence[int], rank: int, inner: int) -> tuple[list[int], list[int]]:
    """A rank's inner (all-to-all) and outer (ring) group within its CP group: neighbours, and every inner-th."""
    index = list(ranks).index(rank)
    first = index // inner * inner
    return list(ranks[first : first + inner]), list(ranks[index % inner :: inner])


def expected(shape: Shape, rank: int) -> tuple[list[int], list[int], list[int]] | None:
    """(CP, inner, outer) of a rank; None for one outside the grid."""
    for ranks in cp_ranks(shape):
        if rank in ranks:
            return (ranks, *levels(ranks, rank, shape.inner))
    return None


def chunks_of(index: int, size: int) -> tuple[int, int]:
    """The two of 2 * size chunks that shard `index` of a zigzag layout holds."""
    return index, 2 * size - 1 - index


def positions(index: int, size: int, chunk: int) -> list[int]:
    """Global positions of a zigzag shard, in local order."""
    return [c * chunk + i for c in chunks_of(index, size) for i in range(chunk)]


def ascending(size: int) -> list[int]:
    """Order that sorts the chunks of `size` concatenated zigzag shards by position."""
    return [*range(0, 2 * size, 2), *range(2 * size - 1, 0, -2)]


def inverse(order: Sequence[int]) -> list[int]:
    """The order that undoes `order`."""
    undone = [0] * len(order)
    for new, old in enumerate(order):
        undone[old] = new
    return undone


@dataclass(frozen=True)
class Cost:
    """What one attention layer sends on one rank, forward."""

    all_to_all: int
    exchanges: int
    inner_bytes: int  # that leave the rank, in all-to-alls
    outer_bytes: int  # that leave the rank, in the ring


def cost(shape: Shape, seq: int, batch: int, heads: int, kv_heads: int, dim: int, itemsize: int) -> Cost:
    """Query, key, value and output cross the inner group once each; keys and values go round the outer ring."""
    rows = seq // shape.cp * batch * dim * itemsize
    crossing = rows * (2 * heads + 2 * kv_heads) * (shape.inner - 1) // shape.inner
    ring = (shape.outer - 1) * 2 * rows * kv_heads  # inner times the rows, 1 / inner of the heads
    return Cost(4 * (shape.inner > 1), shape.outer - 1, crossing, ring)


def causal_entries(seq: int, heads: int) -> int:
    """Entries of the causal score matrices of all heads."""
    return heads * seq * (seq + 1) // 2


def expected_probe(own: Sequence[int], visible: Sequence[int], length: int) -> list[tuple[float, float]]:
    """What uniform causal attention to `visible` makes of v = (position, its square / length) at each own position.

    The mean alone cannot tell two sets of zigzag shards apart whose chunks mirror each other.
    """
    return [
        (sum(seen) / len(seen), sum(v * v for v in seen) / len(seen) / length)
        for p in own
        for seen in [[v for v in visible if v <= p]]
    ]


def views(rank: int, ranks: Sequence[int], inner: int, chunk: int) -> dict[str, list[int]]:
    """The positions that a rank's queries reach if CP is on, off, or on at one level only."""
    size = len(ranks)
    of = {r: positions(i, size, chunk) for i, r in enumerate(ranks)}
    in_ranks, out_ranks = levels(ranks, rank, inner)
    reach = {"on": list(ranks), "off": [rank], "inner only": in_ranks, "outer only": out_ranks}
    return {name: sorted(p for r in members for p in of[r]) for name, members in reach.items()}
