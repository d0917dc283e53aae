"""Every note that scan and plan can give is explained by the page of outcomes of its technique, by its word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillgen.engine import registry
from skillgen.kernel import resources

ROOT = Path(__file__).parents[2]
SLUG = re.compile(r"[a-z]+(-[a-z]+)+")


def words(node: ast.AST) -> Iterator[str]:
    compared = {id(part) for test in ast.walk(node) if isinstance(test, ast.Compare) for part in ast.walk(test)}
    values = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and id(part) not in compared)
    return (value for value in values if isinstance(value, str) and SLUG.fullmatch(value))


def slugs(source: str) -> set[str]:
    """Words of what is assigned to `notes`, of functions that gather notes, and of a table that explains them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = {getattr(target, "id", "") for target in targets}
        gathers = isinstance(node, ast.FunctionDef) and node.name.endswith("_notes")
        if gathers or (names & {"notes", "EXPLAINED"} and not isinstance(node, (ast.For, ast.comprehension))):
            found |= set(words(node))
    return found


def given(technique: str) -> set[str]:
    folder = ROOT / "generators/techniques" / technique.replace("-", "_")
    files = [ROOT / "generators/engine/plan.py", *folder.parent.glob("shared/*.py"), *folder.rglob("*.py")]
    return {slug for path in files for slug in slugs(path.read_text(encoding="utf-8"))}


def unexplained(technique: str, page: str) -> set[str]:
    named = set(re.findall(r"^\| `(?:defect:)?([a-z-]+)` \|", page, re.MULTILINE))
    return given(technique) - named


@pytest.mark.parametrize("technique", registry.names())
def test_every_note_is_explained(technique: str) -> None:
    page = resources.path(f"skills/{technique}/references/outcomes.md").read_text(encoding="utf-8")
    assert {"no-test-tree", "ruff-not-run"} <= given(technique)
    assert unexplained(technique, page) == set()


def test_the_notes_of_the_vision_techniques_are_found() -> None:
    assert {"dist-train", "vision-cuda-graph", "split-by-count"} <= given("vision-dp-over-cp")
    assert {"tower-under-cp-dispatcher", "loop-stays-replicated", "cut-in-order"} <= given("vision-frame-sharding")


def test_a_note_that_no_page_names_is_seen() -> None:
    assert slugs('notes = () if product == "other-word" else ("brand-new",)\n') == {"brand-new"}
    assert slugs('def _notes():\n    return {"brand-new": 1}\n') == {"brand-new"}
    page = resources.path("skills/vision-frame-sharding/references/outcomes.md").read_text(encoding="utf-8")
    without = page.replace("| `loop-stays-replicated` |", "| a loop |")
    assert unexplained("vision-frame-sharding", without) == {"loop-stays-replicated"}
