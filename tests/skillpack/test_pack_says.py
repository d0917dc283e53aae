"""In the pack's tree a skill says no more of proof than the pack's card, and sends every neighbour's job away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillgen.kernel import resources
from skillgen.skillpack.rules import check

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The pack's card, its skills and its reports."""
    for name in ("card.yaml", "pyproject.toml"):
        shutil.copy(resources.root() / name, tmp_path / name)
    for name in ("skills", "proof", "docs"):
        shutil.copytree(resources.root() / name, tmp_path / name)
    card = yaml.safe_load((tmp_path / "card.yaml").read_text())
    for entry in card["techniques"]:  # as `card update` would: the pack may be under work
        rewrite(tmp_path, entry["name"], lambda told, entry=entry: told.update(said(entry)))  # type: ignore[misc]
    return tmp_path


def said(entry: dict[str, Any]) -> dict[str, Any]:
    levels = [claim["level"] for claim in entry["claims"] if claim["level"] != "unproven" or "least" not in claim]
    assert set(levels) <= {"unproven", "documented", "code_verified", "cpu_verified", "gpu_verified"}
    return {
        "claims": [{key: c[key] for key in ("id", "statement", "level", "evidence")} for c in entry["claims"]],
        "validation_status": next(level for level in ("unproven", "code_verified", "cpu_verified") if level in levels),
        "evidence": sorted({place for claim in entry["claims"] for place in claim["evidence"]}),
    }


def rewrite(tree: Path, skill: str, change: Change) -> None:
    path = tree / "skills" / skill / "config/card.yaml"
    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(given)
    path.write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")


def found(tree: Path, skill: str, rule: str = "card") -> list[str]:
    return [finding.do for finding in check(tree / "skills" / skill) if finding.rule == rule]


REPORT = "proof/vision-tp-dp/bridge-0.6.2.json"
FALSE: dict[str, tuple[str, Change, str]] = {
    "a report of something else": (
        "skillgen",
        lambda told: told["claims"][0].update(level="cpu_verified", evidence=[REPORT]),
        "no eval judges skillgen, so no report shows cpu_verified",
    ),
    "a status": ("skillgen", lambda told: told.update(validation_status="cpu_verified"), "validation_status is"),
    "where it ran": ("skillgen", lambda told: told.update(validated_on=["a cluster"]), "validated_on is empty"),
    "evidence of nothing": ("skillgen", lambda told: told.update(evidence=[REPORT]), f"no claim rests on {REPORT}"),
    "evidence out of the tree": (
        "skillgen",
        lambda told: told["claims"][0].update(level="documented", evidence=["/etc/hosts"]),
        "/etc/hosts does not exist",
    ),
    "a level of a technique": (
        "vision-tp-dp",
        lambda told: told["claims"][-1].update(level="gpu_verified", evidence=[REPORT]),
        "gpu is unproven in card.yaml",
    ),
    "a statement of a technique": (
        "vision-tp-dp",
        lambda told: told["claims"][0].update(statement="All is well."),
        "parity is ",
    ),
    "a claim of its own": (
        "vision-tp-dp",
        lambda told: told["claims"].append(told["claims"][0] | {"id": "more", "evidence": []}),
        "more is no claim of card.yaml",
    ),
    "a claim said twice": (
        "vision-tp-dp",
        lambda told: told["claims"].insert(0, told["claims"][0] | {"level": "gpu_verified", "evidence": []}),
        "parity is ",
    ),
    "a claim left out": ("vision-tp-dp", lambda told: told["claims"].pop(), "gpu is unproven in card.yaml"),
    "a status of a technique": (
        "vision-tp-dp",
        lambda told: told.update(validation_status="code_verified"),
        "validation_status is ",
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_card_that_says_more_than_the_packs_is_found(name: str, tree: Path) -> None:
    skill, change, do = FALSE[name]
    assert found(tree, skill) == []
    rewrite(tree, skill, change)
    assert any(told.startswith(do) for told in found(tree, skill)), found(tree, skill)


@pytest.mark.parametrize("text", ["{", "[]", '{"ok": false}', "[" * 5000, None])
def test_evidence_is_the_report_of_a_run_that_passed(text: str | None, tree: Path) -> None:
    (tree / REPORT).unlink()
    if text is not None:
        (tree / REPORT).write_text(text)
    do = "does not exist" if text is None else "is no report of a run that passed"
    assert f"{REPORT} {do}" in found(tree, "vision-tp-dp")


def test_away_from_the_packs_tree_there_is_no_evidence_to_look_for(tree: Path) -> None:
    (tree / "pyproject.toml").unlink()
    rewrite(tree, "skillgen", lambda told: told["claims"][0].update(level="cpu_verified", evidence=["docs/run.json"]))
    assert found(tree, "skillgen") == []


def test_a_card_of_the_pack_that_is_damaged_is_told(tree: Path) -> None:
    (tree / "card.yaml").write_text("techniques: 5")
    assert found(tree, "skillgen")[0].startswith("correct the pack's ")


def entries() -> dict[str, set[str]]:
    card = yaml.safe_load((resources.root() / "card.yaml").read_text())
    return {entry["name"]: {place["product"] for place in entry["targets"]} for entry in card["techniques"]}


PAIRS = [(one, other) for one, ours in entries().items() for other, theirs in entries().items()
         if one != other and ours & theirs]  # fmt: skip


def test_there_are_neighbours() -> None:
    assert {("vision-tp-dp", "hierarchical-cp"), ("blockdiag-gqa", "vision-frame-sharding")} <= set(PAIRS)
    assert ("blockdiag-gqa", "vision-tp-dp") not in PAIRS


@pytest.mark.parametrize(("skill", "neighbour"), PAIRS, ids=lambda name: name)
def test_every_neighbour_needs_a_near_miss_of_its_own(skill: str, neighbour: str, tree: Path) -> None:
    path = tree / "skills" / skill / "evals/evals.json"
    data = json.loads(path.read_text())
    for case in data["evals"]:
        case["expected_skill"] = None if case["expected_skill"] == neighbour else case["expected_skill"]
    path.write_text(json.dumps(data))
    missing = f"add a near miss that wants {neighbour} instead: expected_skill is {neighbour}"
    assert missing in found(tree, skill, "evals")
    data["evals"][-1]["expected_skill"] = neighbour
    path.write_text(json.dumps(data))
    assert missing not in found(tree, skill, "evals")
