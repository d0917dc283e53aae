"""What all techniques share: the fold to rows, notes, receipts, facts, and pages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from skillgen.kernel.errors import AnchorDrift
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.source import Module, Source, SourceSyntaxError
from skillgen.kernel.target import Target, discover
from skillgen.techniques.shared import evidence, pages, verdicts
from skillgen.techniques.shared.site import TargetSite

ROW = Row("t", "f", Outcome.APPLICABLE, "why")
CODE = b"""
from megatron.core.models.common import Tower as T
class Model:
    def forward(self, pixel_values, ids):
        return self.visual(self.pre(pixel_values), use_thing=ids)
    async def forwards(self): ...
"""


@pytest.fixture
def target(tmp_path: Path) -> Target:
    (tmp_path / "megatron/bridge").mkdir(parents=True)
    (tmp_path / "megatron/bridge/__init__.py").touch()
    return discover(tmp_path)


@pytest.fixture
def module() -> Module:
    return Module("a.py", "p/a.py", "p.a", CODE)


def test_a_verdict_is_its_rows() -> None:
    assert verdicts.folded("t", "f", lambda: [ROW, ROW]) == [ROW, ROW]
    assert verdicts.folded("t", "f", lambda: ()) == []


@pytest.mark.parametrize("near", [("a.py:3", "b.py:4"), ()])
def test_an_anchor_that_moved_is_drift(near: tuple[str, ...]) -> None:
    def judge(sought: str) -> list[Row]:
        raise AnchorDrift(sought, where="a.py:1", verified="1.0", nearest=near)

    (row,) = verdicts.folded("t", "f", judge, "call x")
    assert (row.technique, row.family, row.outcome, row.reason) == ("t", "f", Outcome.DRIFT, "anchor-moved")
    assert row.notes == ("sought: call x", "verified: 1.0") and not row.plannable
    assert row.evidence == (near or ("a.py:1",))


def test_a_broken_file_is_refused_also_midway() -> None:
    def judge() -> list[Row]:
        raise SourceSyntaxError("a.py:7", "what")

    (row,) = verdicts.folded("t", "f", judge)
    assert (row.outcome, row.reason, row.evidence) == (Outcome.REFUSED, "syntax-error", ("a.py:7",))


def test_a_drift_names_few_places_once() -> None:
    drift = verdicts.drift("x", "a.py:1", "1.0", ["b", "b", "c", "d", "e"])
    assert drift.nearest == ("b", "c", "d") and drift.where == "a.py:1"


def test_missing_tests_are_a_note(target: Target) -> None:
    assert verdicts.test_tree_notes(target) == ("no-test-tree",)
    (target.root / "tests").mkdir()
    assert verdicts.test_tree_notes(target) == ()
    assert TargetSite(source=Source(target)).tests_root == "tests"


def test_a_receipt_is_of_one_technique_and_family(target: Target) -> None:
    from skillgen.ledger.receipts import file_name

    receipt = target.state_dir / file_name(("t", "f"))
    receipt.parent.mkdir(parents=True)
    receipt.touch()
    found = [verdicts.has_receipt(target, t, f) for t, f in (("t", "f"), ("t", "g"), ("u", "f"))]
    assert found == [True, False, False]


def test_a_use_is_no_import_and_no_prose(module: Module) -> None:
    used = {name: evidence.use_of(module, module.tree, name) for name in ("use_thing", "visual", "ids", "Tower", "x")}
    assert [name for name, fact in used.items() if fact] == ["use_thing", "visual", "ids"]
    assert used["use_thing"] and used["use_thing"].where == "p/a.py:5"


def test_an_import_is_known_by_the_end_of_its_module(module: Module) -> None:
    found = {name: evidence.import_of(module, name) for name in ("models.common", "common.Tower", "ommon", "Tower")}
    assert [name for name, fact in found.items() if fact] == ["models.common", "common.Tower", "Tower"]


def test_encoders_resembling_and_similar(module: Module) -> None:
    ((cls, facts),) = evidence.encoder_like(module)
    assert (cls.name, [fact.where for fact in facts]) == ("Model", ["p/a.py:5"])
    assert [ast.unparse(fact.node)[:8] for fact in evidence.resembling(module, cls, "a.pre")] == [
        "self.vis",
        "self.pre",
    ]
    names = [vars(fact.node)["name"] for fact in evidence.similar(module, "forwardly")]
    assert sorted(names) == ["forward", "forwards"]
    assert evidence.similar(module, "forwardly", ast.ClassDef) == []


def test_sections_go_into_living_pages_alone(target: Target) -> None:
    living, dead = ["a/model.md", "fern/versions/nightly/b/model.mdx"], ["fern/versions/1.0/model.md", "other.md"]
    for name in (*living, *dead):
        page = target.root / "docs" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("# Page\n\n## Examples\n" if name == living[0] else "# Page\n")
    edits = pages.add_section(target, pages.guides(target, "model", ""), "text", before="## Examples")
    assert [(edit.path, edit.before) for edit in edits] == [
        (f"docs/{living[0]}", "## Examples"),
        (f"docs/{living[1]}", None),
    ]
