"""Each rule of a skill folder, broken on purpose in a sound one, is found, and alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillgen.kernel import resources
from skillgen.skillpack import data as skill_data
from skillgen.skillpack import rules as skill_rules
from skillgen.skillpack.rules import check
from skillgen.skillpack.skill import Finding

NAME = "blockdiag-gqa"
Break = Callable[[Path], Any]


CARD = """\
title: blockdiag-gqa
summary: What it does.
validation_status: unproven
validated_on: []
evidence: []
claims:
  - id: crash
    statement: It fails.
    level: unproven
    evidence: []
  - id: parity
    statement: It is the same.
    level: unproven
    evidence: []
failure_modes:
  - {name: heads, symptom: it stops, likely_cause: a gap, fix: close it}
"""


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    """One of ours, with a card of which no run has proven anything."""
    folder = tmp_path / "skills" / NAME
    shutil.copytree(resources.path("skills") / NAME, folder)
    (folder / "config/card.yaml").write_text(CARD)
    assert check(folder) == []
    return folder


def swap(old: str, new: str, file: str = "SKILL.md") -> Break:
    def change(skill: Path) -> None:
        text = (skill / file).read_text(encoding="utf-8")
        assert old in text
        (skill / file).write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def add(file: str, text: str = "") -> Break:
    def write(skill: Path) -> None:
        (skill / file).parent.mkdir(exist_ok=True)
        with (skill / file).open("a", encoding="utf-8") as out:
            out.write(text)

    return write


def describe(text: str) -> Break:
    def change(skill: Path) -> None:
        lines = (skill / "SKILL.md").read_text(encoding="utf-8").split("\n")
        lines = [f"description: {text}" if line.startswith("description:") else line for line in lines]
        (skill / "SKILL.md").write_text("\n".join(lines), encoding="utf-8")

    return change


def card(change: Callable[[dict[str, Any]], Any]) -> Break:
    def write(skill: Path) -> None:
        path = skill / "config/card.yaml"
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        change(given)
        path.write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")

    return write


def cases(change: Callable[[dict[str, Any]], Any]) -> Break:
    def write(skill: Path) -> None:
        path = skill / "evals/evals.json"
        given = json.loads(path.read_bytes())
        path.write_text(json.dumps(change(given) or given), encoding="utf-8")

    return write


LONG = "\n" + "A sentence that says nothing at all, again and again.\n" * 60
BREAKS: dict[str, tuple[str, Break]] = {
    "another folder in the root": ("root", add("notes/page.md")),
    "a card in the root": ("root", add("card.yaml")),
    "when_to_use": ("frontmatter", swap("license:", "when_to_use: always\nlicense:")),
    "version in the root": ("frontmatter", swap("license:", "version: 1.0\nlicense:")),
    "license as a list": ("frontmatter", swap("license: Apache-2.0", "license: [Apache-2.0]")),
    "another name": ("name", swap(f"name: {NAME}", "name: blockdiag")),
    "a description that is long": ("description", swap("Use when ", "Use when " + "very " * 10)),
    "no Use when": ("description", swap("Use when ", "For when ")),
    "no Do not use for": ("description", swap("Do not use for ", "Not for ")),
    "a vague word": ("description", describe("Repairs things. Use when it breaks. Do not use for sharding.")),
    "no third person": ("description", describe("Repair heads. Use when it breaks. Do not use for sharding.")),
    "an address": ("description", describe("Repairs your heads. Use when it breaks. Do not use for sharding.")),
    "an author without mail": ("metadata", swap(" <maintainers@skillgen.example>", "")),
    "no tags": ("metadata", swap('  tags: "', '  labels: "')),
    "a version that is a number": ("metadata", swap('version: "0.1.0"', "version: 0.1")),
    "a key in snake case": ("metadata", swap("  tags:", '  more_tags: "x"\n  tags:')),
    "no Limitations": ("sections", swap("## Limitations", "## Limits")),
    "an empty section": ("sections", swap("## Troubleshooting\n", "## Troubleshooting\n\n## More\n")),
    "Instructions without numbers": ("sections", swap("## Instructions\n", "## Instructions\n\nGo.\n\n## Steps\n")),
    "a step without a verb": ("sections", swap("1. Run `skillgen scan", "1. The scan is `skillgen scan")),
    "scripts without a table": ("scripts", add("scripts/run.py")),
    "many lines": ("length", add("SKILL.md", "\n" * 500)),
    "many characters": ("length", add("SKILL.md", LONG * 6)),
    "many tokens": ("length", add("SKILL.md", LONG * 3)),
    "a reference that is no page": ("references", add("references/table.csv")),
    "a reference with a short name": ("references", add("references/faq.md")),
    "a reference that nobody links": ("references", add("references/details.md")),
    "a reference that links another": ("references", add("references/outcomes.md", "[x](verification.md)\n")),
    "a link to nothing": (
        "links",
        swap("(references/outcomes.md)", "(references/outcomes.md) [x](references/gone.md)"),
    ),
    "a link out of the folder": ("links", swap("## Limitations", "[x](../../skills)\n\n## Limitations")),
    "a benchmark": ("machine-made", add("BENCHMARK.md")),
    "a signature": ("machine-made", add("skill.oms.sig")),
    "bytecode": ("machine-made", add("config/__pycache__/x.pyc")),
    "no card": ("card", lambda skill: (skill / "config/card.yaml").rename(skill / "config/other.yaml")),
    "a card that is a list": ("card", lambda skill: (skill / "config/card.yaml").write_text("[]")),
    "a card that is no YAML": ("card", lambda skill: (skill / "config/card.yaml").write_text("a: [")),
    "a card without a summary": ("card", card(lambda card: card.pop("summary"))),
    "a card with an unknown key": ("card", card(lambda card: card.update(owner="us"))),
    "a status that is no level": ("card", card(lambda card: card.update(validation_status="verified"))),
    "a status above every claim": ("card", card(lambda card: card.update(validation_status="gpu_verified"))),
    "a level of another list": ("card", card(lambda card: card["claims"][0].update(level="doc_only"))),
    "a claim without a statement": ("card", card(lambda card: card["claims"][0].pop("statement"))),
    "a verified claim without a report": ("card", card(lambda card: card["claims"][0].update(level="cpu_verified"))),
    "a failure without a fix": ("card", card(lambda card: card["failure_modes"][0].pop("fix"))),
    "a result without a command": (
        "card",
        card(lambda card: card.update(measured_results=[{"what": "time", "figure": "1 s"}])),
    ),
    "evals as a list": ("evals", cases(lambda data: data["evals"])),
    "evals of another skill": ("evals", cases(lambda data: data.update(skill_name="other"))),
    "an id that is text": ("evals", cases(lambda data: data["evals"][0].update(id="1"))),
    "an id twice": ("evals", cases(lambda data: data["evals"][1].update(id=1))),
    "a case without assertions": ("evals", cases(lambda data: data["evals"][0].update(assertions=[]))),
    "a case with another key": ("evals", cases(lambda data: data["evals"][0].update(ground_truth="x"))),
    "no negatives": ("evals", cases(lambda data: data.update(evals=data["evals"][:4]))),
    "a claim documented nowhere": ("card", card(lambda card: card["claims"][0].update(level="documented"))),
    "a status without claims": ("card", card(lambda card: card.update(claims=[], validation_status="gpu_verified"))),
    "an id that is a fraction": ("evals", cases(lambda data: data["evals"][0].update(id=1.0))),
    "three positives": ("evals", cases(lambda data: data["evals"][3].update(expected_skill=None))),
    "no evals": ("evals", lambda skill: (skill / "evals/evals.json").unlink()),
}


def test_every_rule_is_broken_somewhere() -> None:
    rules = {rule.__name__.replace("_", "-") for rule in (*skill_rules.RULES, *skill_data.RULES)}
    assert {rule for rule, _ in BREAKS.values()} == rules - {"place"}


@pytest.mark.parametrize(("rule", "change"), BREAKS.values(), ids=BREAKS)
def test_a_broken_rule_is_found_alone(skill: Path, rule: str, change: Break) -> None:
    change(skill)
    found = check(skill)
    assert {finding.rule for finding in found} == {rule}, found
    assert all((skill / finding.file).exists() or "write" in finding.do for finding in found)


def test_a_folder_elsewhere_and_one_without_a_page(skill: Path, tmp_path: Path) -> None:
    moved = skill.rename(tmp_path / NAME)
    assert check(moved) == [Finding("place", ".", 0, f"move the folder to skills/{NAME}")]
    (tmp_path / "skills" / "empty").mkdir(parents=True)
    assert "place" in {finding.rule for finding in check(tmp_path / "skills" / "empty")}


def test_scripts_with_a_table_are_fine(skill: Path) -> None:
    add("scripts/run.py")(skill)
    table = (
        "## Available Scripts\n\n| script | does |\n|---|---|\n| run.py | `run_script('run.py')` |\n\n## Limitations"
    )
    swap("## Limitations", table)(skill)
    assert check(skill) == []


def test_many_tokens_are_a_warning_and_the_rest_errors(skill: Path) -> None:
    add("SKILL.md", LONG * 3)(skill)
    assert [finding.level for finding in check(skill)] == ["warning"]
    add("SKILL.md", LONG * 6)(skill)
    assert [finding.level for finding in check(skill)] == ["error"]


def test_a_finding_names_its_line(skill: Path) -> None:
    swap("license:", "tags: x\nlicense:")(skill)
    swap("  - id: parity", "  - id: parity\n    owner: us", "config/card.yaml")(skill)
    swap("level: unproven", "level: proven", "config/card.yaml")(skill)
    found = {finding.rule: finding for finding in check(skill)}
    lines = (skill / "SKILL.md").read_text().splitlines()
    assert lines[found["frontmatter"].line - 1] == "tags: x"
    lines = (skill / "config/card.yaml").read_text().splitlines()
    assert lines[found["card"].line - 1] == "  - id: crash"
