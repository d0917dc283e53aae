"""A command reads its target once, and asks a technique about trees of its own products alone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillgen.engine import plan, registry
from skillgen.engine.scan import scan
from skillgen.kernel import source
from skillgen.kernel.product import products
from skillgen.kernel.target import Target, discover
from tests.cli.trees import write

T = "vision-dp-over-cp"


@pytest.fixture
def target(tmp_path: Path) -> Target:
    write(tmp_path / "megatron/bridge")
    return discover(tmp_path)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[bytes]]:
    """How often each text is parsed."""
    found: Counter[bytes] = Counter()
    source._parse.cache_clear()

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(ast, name)

        def parse(self, text: bytes) -> ast.Module:
            found[text] += 1
            return ast.parse(text)

    monkeypatch.setattr(source, "ast", Counting())
    # without what a process keeps, as if each reading were another's
    monkeypatch.setattr(source, "_parse", source._parse.__wrapped__)
    yield found


def test_scan_parses_a_file_once_for_all_techniques(target: Target, parsed: Counter[bytes]) -> None:
    assert scan(target)
    assert parsed and max(parsed.values()) == 1


def test_rows_and_plans_are_of_one_reading(target: Target, parsed: Counter[bytes]) -> None:
    assert plan.plan_changes(target, T, [], {}, lint=False).changes
    assert parsed and max(parsed.values()) == 1


def test_the_next_command_reads_anew(target: Target) -> None:
    (before,) = [row for row in scan(target) if row.family == "ministral3" and row.technique == T]
    plan.apply(target, plan.plan_changes(target, T, ["ministral3"], {}, lint=False))
    (after,) = [row for row in scan(target) if row.family == "ministral3" and row.technique == T]
    assert (before.outcome.value, after.outcome.value) == ("applicable", "applied")


@pytest.mark.parametrize("technique", registry.names())
def test_a_technique_is_asked_about_its_own_products_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, technique: str
) -> None:
    asked = []
    monkeypatch.setattr(registry.load(technique), "rows", lambda source: asked.append(source.target.product) or [])
    for known in products().values():
        path = tmp_path / known.name / known.package / known.markers[0]
        path.parent.mkdir(parents=True)
        path.touch()
        assert scan(discover(tmp_path / known.name), technique=technique) == []
    assert asked == [name for name in products() if name in registry.about(technique).PRODUCTS]
    assert asked and set(registry.about(technique).PRODUCTS) <= products().keys()
