"""Pitfalls that are told in tables: each names a check that exists and a test that is there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from skillgen.kernel import resources
from tests.transcripts.test_reasons import explained

ROOT = Path(__file__).parents[2]
COLUMNS = ["symptom", "cause", "cure", "check", "test"]


def rows(technique: str) -> list[dict[str, str]]:
    page = resources.path(f"skills/{technique}/references/pitfalls.md").read_text(encoding="utf-8")
    head, _, *lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    assert head == COLUMNS
    return [dict(zip(COLUMNS, line, strict=True)) for line in lines]


def cases(technique: str) -> set[tuple[str, str]]:
    """Kind and name of every case in the reports of the technique's runs."""
    reports = [json.loads(path.read_bytes()) for path in (ROOT / "proof" / technique).glob("*.json")]
    return {(row["kind"], row["name"]) for report in reports for row in report["rows"]}


def unknown_check(technique: str, check: str) -> list[str]:
    """Parts of a check that nothing does."""
    known, wrong = cases(technique), []
    for part in check.split("; "):
        kind = re.match(r"`eval`, (\w+), ", part)
        names = re.findall(r'"([^"]+)"', part)
        reason = re.fullmatch(r"`scan`, `([a-z-]+)`", part)
        if kind and names:
            wrong += [name for name in names if not any(kind[1] == k and name in case for k, case in known)]
        elif not (reason and reason[1] in explained(technique)):
            wrong.append(part)
    return wrong


def is_there(test: str) -> bool:
    """Whether a file of the pack has the test; the form of a patch's test is no Python."""
    place, _, name = test.partition("::")
    if not (ROOT / place).is_file():
        return False
    text = (ROOT / place).read_text(encoding="utf-8")
    if place.endswith(".j2"):
        return re.search(rf"^def {name}\(", text, re.MULTILINE) is not None
    return name in {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("technique", ["blockdiag-gqa", "hierarchical-cp"])
def test_each_names_a_check_and_a_test_that_exist(technique: str) -> None:
    found = rows(technique)
    assert sum(row["test"] != "none" for row in found) >= 5
    for row in found:
        assert row["check"] == "none" or unknown_check(technique, row["check"]) == [], row["symptom"]
        assert row["test"] == "none" or is_there(row["test"].strip("`")), row["symptom"]


def test_what_does_not_exist_is_seen() -> None:
    assert unknown_check("blockdiag-gqa", '`eval`, parity, "bf17"') == ["bf17"]
    assert unknown_check("blockdiag-gqa", '`eval`, crash, "bf16"') == ["bf16"]
    assert unknown_check("blockdiag-gqa", "`scan`, `no-such-reason`") == ["`scan`, `no-such-reason`"]
    assert unknown_check("blockdiag-gqa", "look at it") == ["look at it"]
    assert not is_there("tests/blockdiag_gqa/test_blockdiag_gqa.py::test_no_such")
    assert not is_there("tests/no_such.py::test_release")
