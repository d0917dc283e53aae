"""Degrees of the vision encoder and the ranks they group: the mode table row by row, and megatron-core's own grid."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillgen.runtime.tp_dp import VisionParallelConfig, degrees, dp_columns, packing, replica_groups, tp_groups
from tests.releases import original

RESOLVED = [  # world, tp_size, dp_size, what they become
    (16, None, None, (1, 16)),
    (8, None, None, (1, 8)),
    (1, None, None, (1, 1)),
    (16, 1, None, (1, 16)),
    (16, 4, None, (4, 4)),
    (16, 16, None, (16, 1)),
    (16, None, 4, (4, 4)),
    (16, None, 16, (1, 16)),
    (16, None, 1, (16, 1)),
    (16, 4, 4, (4, 4)),
    (16, 1, 16, (1, 16)),
    (16, 16, 1, (16, 1)),
    (8, 2, 4, (2, 4)),
    (12, 3, None, (3, 4)),
]


@pytest.mark.parametrize("world, tp, dp, expected", RESOLVED)
def test_degrees_are_resolved_and_stay_so(
    world: int, tp: int | None, dp: int | None, expected: tuple[int, int]
) -> None:
    config = VisionParallelConfig(tp, dp)
    assert config.resolve_tp_dp(world) == expected
    assert (config.tp_size, config.dp_size) == expected
    assert config.resolve_tp_dp(world) == expected


REFUSED = [  # world, tp_size, dp_size, the message
    (16, 3, None, "vision_tp_size must be a positive integer that divides the 16 ranks of a microbatch, got 3"),
    (16, 0, None, "vision_tp_size must be a positive integer that divides the 16 ranks of a microbatch, got 0"),
    (16, 32, None, "vision_tp_size must be a positive integer that divides the 16 ranks of a microbatch, got 32"),
    (16, -4, None, "vision_tp_size must be .*, got -4"),
    (16, 4.0, None, r"vision_tp_size must be .*, got 4\.0"),
    (16, True, None, "vision_tp_size must be .*, got True"),
    (16, "4", None, "vision_tp_size must be .*, got '4'"),
    (16, None, 5, "vision_dp_size must be a positive integer that divides the 16 ranks of a microbatch, got 5"),
    (16, None, 0, "vision_dp_size must be .*, got 0"),
    (16, 4, 8, r"vision_tp_size \* vision_dp_size must be the 16 ranks of a microbatch, got 4 \* 8 = 32"),
    (16, 1, 4, r"vision_tp_size \* vision_dp_size must be the 16 ranks of a microbatch, got 1 \* 4 = 4"),
    (8, 1, 4, r"vision_tp_size \* vision_dp_size must be the 8 ranks of a microbatch, got 1 \* 4 = 4"),
    (0, None, None, "world_size must be a positive integer, got 0"),
]


@pytest.mark.parametrize("world, tp, dp, message", REFUSED)
def test_degrees_that_cannot_be_are_named_and_left_as_they_were(world: int, tp: Any, dp: Any, message: str) -> None:
    config = VisionParallelConfig(tp, dp)
    with pytest.raises(ValueError, match=f"^{message}$"):
        config.resolve_tp_dp(world)
    assert (config.tp_size, config.dp_size) == (tp, dp)


def test_resolved_degrees_do_not_pass_for_another_world() -> None:
    config = VisionParallelConfig()
    config.resolve_tp_dp(8)
    with pytest.raises(ValueError, match=r"vision_dp_size must be .* divides the 4 ranks"):
        config.resolve_tp_dp(4)


def test_ranks_of_the_document() -> None:
    sixteen, eight = range(16), range(8)
    assert tp_groups(sixteen, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert tp_groups(eight, 1) == [[rank] for rank in eight]
    assert dp_columns(sixteen, 4, 4) == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert dp_columns(eight, 1, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]  # which the resolver refuses
    assert dp_columns(eight, 8, 1) == [[rank] for rank in eight]


def test_replicas_are_in_one_text_tp_group() -> None:
    assert replica_groups(range(8), 2, 4) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert replica_groups(range(8), 1, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert replica_groups(range(8), 4, 4) == [[rank] for rank in range(8)]
    assert replica_groups([8, 9, 10, 11], 2, 4) == [[8, 10], [9, 11]]


@pytest.mark.parametrize("call, message", [
    (lambda: tp_groups(range(8), 3), "tp must be positive and divide the 8 ranks, got 3"),
    (lambda: tp_groups(range(8), 0), "tp must be positive and divide the 8 ranks, got 0"),
    (lambda: dp_columns(range(8), 2, 3), r"tp \* dp must be positive and divide the 8 ranks, got 2 \* 3"),
    (lambda: dp_columns(range(8), 0, 2), r"tp \* dp must be positive and divide the 8 ranks, got 0 \* 2"),
    (lambda: dp_columns(range(8), 2, -2), r"tp \* dp must be positive and divide the 8 ranks, got 2 \* -2"),
    (lambda: replica_groups(range(8), 4, 2), "tp must be positive and divide the text model's 2, got 4"),
    (lambda: replica_groups(range(6), 2, 4), r"tp \* dp must be positive and divide the 6 ranks, got 2 \* 2"),
])  # fmt: skip
def test_ranks_that_cannot_be_grouped_are_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 50))
def test_every_rank_is_in_one_group_of_each_sort(tp: int, replicas: int, cp: int, first: int) -> None:
    """A replica group lies in one column and one text TP group; a TP group meets a column in one rank."""
    text = tp * replicas
    world = range(first, first + text * cp)
    rows, columns, equal = tp_groups(world, tp), dp_columns(world, tp, replicas * cp), replica_groups(world, tp, text)
    for lists in (rows, columns, equal):
        assert sorted(rank for members in lists for rank in members) == list(world)
        assert all(members == sorted(members) for members in lists)
    assert all(len(set(row) & set(column)) == 1 for row in rows for column in columns)
    for members in equal:
        assert any(set(members) <= set(column) for column in columns)
        assert any(set(members) <= set(group) for group in tp_groups(world, text))
    for column in columns:  # as backward takes it: places of one CP rank are in a row, those that it sums a step apart
        for place in range(replicas):
            summed = column[place::replicas]
            assert [rank - summed[0] for rank in summed] == [text * shard for shard in range(cp)]


CASES = [(4, 4, 1), (4, 4, 2), (4, 2, 1), (4, 1, 1), (8, 8, 2), (8, 4, 2), (8, 4, 1), (8, 4, 4), (16, 16, 4)]
CASES += [(16, 8, 4), (16, 8, 2), (16, 4, 4), (16, 4, 1), (16, 2, 2)]


@pytest.fixture(scope="module")
def grid_class() -> Any:
    path = original("core-0.19.2") / "megatron/core/hyper_comm_grid.py"
    pytest.importorskip("numpy")
    spec = importlib.util.spec_from_file_location("hyper_comm_grid", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # its dataclass looks itself up
        spec.loader.exec_module(module)
    return module.HyperCommGrid


@pytest.mark.parametrize("world, text_tp, tp", CASES)
def test_ranks_are_those_of_megatron_cores_grid(
    world: int, text_tp: int, tp: int, grid_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(world))
    cp, replicas = world // text_tp, text_tp // tp
    grid = grid_class([text_tp, cp], ["tp", "cp"])
    assert tp_groups(range(world), text_tp) == grid.get_rank_enum("tp")
    grid.register_view("vision", [tp, replicas, cp], ["vision_tp", "replica", "cp"], shared_dims=["cp"])
    assert tp_groups(range(world), tp) == grid.get_rank_enum("vision_tp", view="vision")
    assert replica_groups(range(world), tp, text_tp) == grid.get_rank_enum("replica", view="vision")
    columns = grid.get_rank_enum(["replica", "cp"], view="vision")
    assert dp_columns(range(world), tp, world // tp) == columns
    grid.register_view("reversed", [cp * replicas, tp], ["vision_dp", "vision_tp"])
    degenerate = tp in (1, world)
    assert (tp_groups(range(world), tp) == grid.get_rank_enum("vision_tp", view="reversed")) is degenerate
    assert (columns == grid.get_rank_enum("vision_dp", view="reversed")) is degenerate


@pytest.mark.parametrize("module", [degrees, packing], ids=lambda module: module.__name__)
def test_arithmetic_needs_no_torch(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_bytes())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or node.names[0].name for node in nodes}  # type: ignore[attr-defined]
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names) | {"plan"}
