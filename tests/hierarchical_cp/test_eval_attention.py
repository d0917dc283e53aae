"""Our reference of hierarchical attention on forked ranks: exact where right, and the gate sees what is wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from skillgen.evals.hierarchical_cp import cases_numerics, cases_probe
from skillgen.evals.kernel import attention, tables
from skillgen.evals.kernel.attention import Groups
from skillgen.evals.kernel.stand_in import levels_of
from skillgen.evals.kernel.tables import Shape
from tests.distributed import run_ranks


def levels(shape: Shape, rank: int) -> Groups:
    """Groups by the definition, made on all ranks."""
    mine: list[Any] = []
    for level in (1, 2):
        members = {tuple(found[level]) for r in range(shape.world) if (found := tables.expected(shape, r))}
        for ranks in sorted(members):
            group = dist.new_group(list(ranks))
            if rank in ranks:
                mine.append(group)
    return Groups(*mine)


def everything(rank: int, shape: Shape) -> dict[str, Any]:
    """Errors of the right way and of each control, a transposed gradient, and the verdicts of the probe."""
    context: Any = SimpleNamespace(rank=rank, device=torch.device("cpu"))
    groups = levels(shape, rank)
    found: dict[str, Any] = {"right": cases_numerics.errors(context, shape, groups)}
    for control, wrong in cases_numerics.CONTROLS.items():
        zigzag = control != "contiguous shards"
        found[control] = cases_numerics.errors(context, shape, wrong(groups), zigzag=zigzag)
    x = torch.zeros(groups.a2a, 2, 3, dtype=torch.float64, requires_grad=True)
    grad = torch.arange(6 * groups.a2a, dtype=torch.float64).reshape(3, 2, groups.a2a).transpose(0, 2)
    (back,) = torch.autograd.grad(attention._AllToAll.apply(x, groups), x, grad)
    found["transposed gradient"] = float((back - grad[dist.get_rank(groups.inner)]).abs().max())
    for view, left in {
        "on": groups,
        "off": Groups(),
        "inner only": Groups(inner=groups.inner),
        "outer only": Groups(outer=groups.outer),
    }.items():
        found[view] = reach(rank, shape, left)
    return found


def reach(rank: int, shape: Shape, groups: Groups) -> str:
    own = tables.positions(rank, shape.cp, 2)
    where = torch.tensor(own, dtype=torch.float64)
    value = torch.zeros(len(own), 1, 4, 4, dtype=torch.float64)
    value[..., 0], value[..., 1] = where[:, None, None], where.square()[:, None, None] / (4 * shape.cp)
    query = torch.zeros(len(own), 1, 8, 4, dtype=torch.float64)
    out = attention.hierarchical(query, value * 0, value, groups)[:, 0, 0, :2].tolist()
    return cases_probe.verdict([(a, b) for a, b in out], rank, list(range(shape.cp)), shape.inner, 1e-10)


@pytest.fixture(scope="module", params=tables.SPLITS, ids=str)
def ranks(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    shape = Shape(1, *request.param)
    return run_ranks(shape.world, everything, shape)


def test_parity_with_full_attention(ranks: list[dict[str, Any]]) -> None:
    assert max(error for found in ranks for error in found["right"].values()) <= cases_numerics.GATE


@pytest.mark.parametrize("control", cases_numerics.CONTROLS)
def test_the_gate_rejects_what_is_wrong(ranks: list[dict[str, Any]], control: str) -> None:
    for what in ("out", "dq", "dk", "dv"):
        assert max(found[control][what] for found in ranks) > 0.1


def test_gradients_may_come_transposed(ranks: list[dict[str, Any]]) -> None:
    """Forward would be exact all the same; a buffer with the gradient's strides would mix its rows."""
    assert [found["transposed gradient"] for found in ranks] == [0.0] * len(ranks)


@pytest.mark.parametrize("view", cases_probe.VIEWS)
def test_the_probe_names_what_is_on(ranks: list[dict[str, Any]], view: str) -> None:
    assert {found[view] for found in ranks} == {view}


def test_no_group_is_no_context_parallelism() -> None:
    groups = levels_of(None, "a2a+p2p")
    assert groups.inner is None
    assert groups.outer is None


def test_a_flat_group_is_no_hierarchy() -> None:
    with pytest.raises(AssertionError, match="list of two groups"):
        levels_of(object(), "a2a+p2p")
