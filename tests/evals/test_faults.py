"""What the fault matrices of `make test-evals` cover, looked up here so that `make test` sees what they forget."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

from skillgen.engine import registry
from skillgen.engine.suites import suite_of

TESTS = Path(__file__).parents[1]
SMOKE = "evals/test_smoke.py"


def matrices(technique: str) -> list[ModuleType]:
    """The modules of a technique that say by which case each fault is caught."""
    folder = technique.replace("-", "_")
    files = sorted(path for path in (TESTS / folder).glob("test_*.py") if "\nFAULTS" in path.read_text())
    return [importlib.import_module(f"tests.{folder}.{path.stem}") for path in files]


@pytest.mark.parametrize("technique", registry.names())
def test_every_mutation_is_in_a_matrix(technique: str) -> None:
    found: set[str] = set()
    for module in matrices(technique):
        assert module.pytestmark == pytest.mark.evals
        parametrized, *_ = module.test_every_fault_is_caught.pytestmark
        assert parametrized.name == "parametrize" and parametrized.args == ("name", module.FAULTS)
        found |= set(module.FAULTS)
    assert found == set(suite_of(technique).MUTATIONS)


def test_what_runs_an_eval_is_marked() -> None:
    """`make test` has one eval per technique, of which its smoke test is made."""
    unmarked = set()
    for path in TESTS.rglob("test_*.py"):
        tree = ast.parse(path.read_text())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        runs = bool({"forked", "forking"} & names) or "evaluated" in {
            (node.module or "").rpartition(".")[2] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
        }
        if runs and "\npytestmark = pytest.mark.evals\n" not in path.read_text():
            unmarked.add(path.relative_to(TESTS).as_posix())
    assert unmarked == {SMOKE}
