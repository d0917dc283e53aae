"""The arithmetic of hierarchical context parallelism, by tables and by definition."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from skillgen.evals.kernel import tables
from skillgen.evals.kernel.tables import Shape

# rank: (CP, inner, outer) of world 8, TP 2, CP 4 [2,2]
TP2 = {
    0: ([0, 2, 4, 6], [0, 2], [0, 4]),
    1: ([1, 3, 5, 7], [1, 3], [1, 5]),
    2: ([0, 2, 4, 6], [0, 2], [2, 6]),
    3: ([1, 3, 5, 7], [1, 3], [3, 7]),
    4: ([0, 2, 4, 6], [4, 6], [0, 4]),
    5: ([1, 3, 5, 7], [5, 7], [1, 5]),
    6: ([0, 2, 4, 6], [4, 6], [2, 6]),
    7: ([1, 3, 5, 7], [5, 7], [3, 7]),
}


@pytest.mark.parametrize("rank", TP2)
def test_groups_with_tensor_parallelism(rank: int) -> None:
    assert tables.expected(Shape(2, 2, 2), rank) == TP2[rank]


@pytest.mark.parametrize(
    ("shape", "rank", "wanted"),
    [
        (Shape(1, 4, 2), 5, ([*range(8)], [4, 5, 6, 7], [1, 5])),
        (Shape(1, 2, 4), 5, ([*range(8)], [4, 5], [1, 3, 5, 7])),
        (Shape(1, 2, 2, dp=2), 6, ([4, 5, 6, 7], [6, 7], [4, 6])),
        (Shape(1, 2, 2, pp=2), 3, ([0, 1, 2, 3], [2, 3], [1, 3])),
        (Shape(1, 2, 2, offset=4), 5, ([4, 5, 6, 7], [4, 5], [5, 7])),
        (Shape(1, 2, 2, offset=4), 3, None),
    ],
    ids=str,
)
def test_groups_of_other_layouts(shape: Shape, rank: int, wanted: object) -> None:
    assert tables.expected(shape, rank) == wanted


@pytest.mark.parametrize(
    ("world", "wanted"),
    [
        (2, []),
        (4, ["CP 4 [2,2]"]),
        (
            8,
            ["CP 4 [2,2], DP 2", "CP 4 [2,2], PP 2", "CP 4 [2,2], TP 2", "CP 8 [4,2]", "CP 8 [2,4]"],
        ),
    ],
)
def test_every_layout_that_a_world_allows(world: int, wanted: list[str]) -> None:
    assert [str(shape) for shape in tables.shapes(world)] == wanted
    assert all(shape.world == world for shape in tables.shapes(world))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_ascending_sorts_concatenated_zigzag_shards(size: int) -> None:
    chunks = [chunk for index in range(size) for chunk in tables.chunks_of(index, size)]
    order = tables.ascending(size)
    assert [chunks[i] for i in order] == [*range(2 * size)]
    assert [order[i] for i in tables.inverse(order)] == [*range(2 * size)]


@pytest.mark.parametrize(("inner", "outer"), tables.SPLITS)
def test_the_inner_groups_shards_are_a_zigzag_shard_of_the_ring(inner: int, outer: int) -> None:
    cp, chunk = inner * outer, 3
    for rank in range(cp):
        members, ring = tables.levels(range(cp), rank, inner)
        held = sorted(p for member in members for p in tables.positions(member, cp, chunk))
        assert held == tables.positions(ring.index(rank), outer, inner * chunk)


def test_cost_of_a_layer() -> None:
    # 8 positions a rank, 128 bytes a head: half of 8 + 4 + 4 + 8 heads leave inside, 2 * 4 go round the ring thrice
    assert tables.cost(Shape(1, 2, 4), 64, 1, 8, 4, 16, 8) == tables.Cost(4, 3, 8 * 128 * 24 // 2, 3 * 2 * 8 * 128 * 4)
    assert tables.cost(Shape(1, 1, 4), 64, 1, 8, 4, 16, 8).all_to_all == 0


@pytest.mark.parametrize("split", tables.SPLITS, ids=str)
def test_the_probe_tells_every_state_apart_on_some_rank(split: tuple[int, int]) -> None:
    inner, outer = split
    cp, chunk = inner * outer, 2
    told: dict[str, set[str]] = {}
    for rank in range(cp):
        own = tables.positions(rank, cp, chunk)
        views = tables.views(rank, range(cp), inner, chunk)
        seen = {name: tables.expected_probe(own, visible, 2 * cp * chunk) for name, visible in views.items()}
        assert [mean for mean, _ in seen["on"]] == [position / 2 for position in own]
        for name, values in seen.items():
            told.setdefault(name, set()).update(other for other in seen if other != name and seen[other] != values)
    assert all(others == told.keys() - {name} for name, others in told.items())


def test_the_launcher_reads_the_suite_without_torch() -> None:
    code = (
        "import sys; import skillgen.evals.hierarchical_cp.suite as s; s.probed([]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_settings_of_a_recipe_are_its_literals() -> None:
    from skillgen.evals.hierarchical_cp.cases_checks import settings

    source = (
        "def f():\n    cfg = g()\n    cfg.model.cp = 4\n    cfg.model.x = h()\n    cfg.dist.on = True\n    return cfg"
    )
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert settings(function) == {"model": {"cp": 4}, "dist": {"on": True}}
