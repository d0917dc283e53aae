"""Limits of difference stand in one table, and the processor that the tests simulate rounds by the number of rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import skillgen.evals
from skillgen.evals.kernel import tolerances
from tests.evals.rounding import rounding

EVALS = Path(str(skillgen.evals.__file__)).parent


def limits(tree: ast.AST) -> Iterator[float]:
    """Small numbers that a module names, or sets beside a value, as a check does its limit."""
    named = (node.value for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign))
    seconds = (node.elts[1] for node in ast.walk(tree) if isinstance(node, ast.Tuple) and len(node.elts) == 2)
    for found in (*named, *seconds):
        parts = found.values if isinstance(found, ast.Dict) else [found]
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, float) and 0 < part.value < 5e-3:
                yield part.value


@pytest.mark.parametrize("path", sorted(EVALS.rglob("*.py")), ids=lambda path: str(path.relative_to(EVALS)))
def test_no_other_module_has_a_limit_of_its_own(path: Path) -> None:
    found = [*limits(ast.parse(path.read_text()))]
    assert not found or path == Path(tolerances.__file__), found


def test_a_limit_is_found() -> None:
    for text in ("ROUNDING = 2e-5", "class A:\n    rounding = 1e-6", 'x = {"a": (value, 1e-5)}', 'R = {"on": 1e-12}'):
        assert [*limits(ast.parse(text))], text
    assert not [*limits(ast.parse('x = {"a": (value, limit)}; y = 0.02'))]


def test_the_simulated_processor_rounds_by_the_number_of_rows() -> None:
    generator = torch.Generator().manual_seed(1)
    rows, weight = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((6, 4), (4, 5)))
    with rounding():
        whole, share = rows @ weight, rows[:3] @ weight
        assert torch.equal(whole, rows @ weight), "the same product rounds alike"
    assert not torch.equal(whole[:3], share)
    assert float((whole[:3] - share).abs().max() / whole.abs().max()) <= tolerances.of(torch.float64)
