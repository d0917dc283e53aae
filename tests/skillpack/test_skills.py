"""Every skill folder keeps the rules of the open format, and every claim has a level and, where verified, evidence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillgen.engine import registry
from skillgen.skillpack.rules import check

ROOT = Path(__file__).parents[2]
SKILLS = sorted(path for path in (ROOT / "skills").iterdir() if path.is_dir())
FOLDERS = {"agents", "references", "scripts", "assets", "evals", "tests", "tools", "config"}
KEYS = {"name", "description", "license", "allowed-tools", "metadata", "compatibility"}
SECTIONS = {"Purpose", "Prerequisites", "Instructions", "Examples", "Limitations", "Troubleshooting"}
LEVELS = {"unproven", "documented", "code_verified", "cpu_verified", "gpu_verified", "cluster_verified"}
VAGUE = re.compile(r"\b(various|general|things|stuff|etc)\b")
CARD = yaml.safe_load((ROOT / "card.yaml").read_text(encoding="utf-8"))

each_skill = pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.name)


def frontmatter(skill: Path) -> tuple[dict[str, Any], str]:
    _, head, body = (skill / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(head), body


def test_there_is_a_skill_for_every_technique() -> None:
    assert [skill.name for skill in SKILLS] == sorted([*registry.names(), "skillgen"])


@each_skill
def test_the_rules_find_nothing(skill: Path) -> None:
    assert check(skill) == []


@each_skill
def test_the_deep_parts_are_references(skill: Path) -> None:
    pages = {page.stem for page in (skill / "references").iterdir()}
    if skill.name == "skillgen":
        assert pages == {"first-answer", "impact", "implementation", "loop", "outcomes", "pitfalls"}
    else:
        assert pages == {"first-answer", "impact", "implementation", "outcomes", "pitfalls", "verification"}
        impact = (skill / "references/impact.md").read_text(encoding="utf-8")
        assert re.search(r"^```\n(?:skillgen .+\n)*skillgen eval .+\n```$", impact, re.MULTILINE)


@each_skill
def test_folder_holds_what_the_format_allows(skill: Path) -> None:
    assert {path.name for path in skill.iterdir()} <= FOLDERS | {"SKILL.md", "README.md"}
    assert not list(skill.rglob("BENCHMARK.md")) + list(skill.rglob("skill.oms.sig"))
    for page in (skill / "references").iterdir():
        assert page.suffix == ".md" and len(page.stem) >= 4
        assert not re.search(r"\]\([^)]*\.md", page.read_text(encoding="utf-8"))


@each_skill
def test_frontmatter(skill: Path) -> None:
    head, _ = frontmatter(skill)
    assert set(head) <= KEYS
    assert head["name"] == skill.name and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", skill.name) and len(skill.name) <= 64
    text = head["description"]
    assert 20 <= len(text) <= 200 and "Use when " in text and "Do not use for " in text and not VAGUE.search(text)
    metadata = head["metadata"]
    assert all(isinstance(value, str) and re.fullmatch(r"[a-z-]+", key) for key, value in metadata.items())
    assert re.fullmatch(r"[^<]+ <[^@ ]+@[^@ ]+>", metadata["author"]) and metadata["tags"] and metadata["version"]


@each_skill
def test_sections_and_length(skill: Path) -> None:
    _, body = frontmatter(skill)
    assert set(re.findall(r"^## (.+)$", body, re.MULTILINE)) >= SECTIONS
    assert re.search(r"## Instructions\n(?:.*\n)*?1\. ", body)
    assert len(body.splitlines()) <= 500 and len(body) <= 20_000
    assert not (skill / "scripts").exists() or ("## Available Scripts" in body and "run_script" in body)
    for link in re.findall(r"\]\(([^)]+)\)", body):
        assert (skill / link).is_file(), link
    assert "(config/card.yaml)" in body


@each_skill
def test_evals_have_negatives_for_the_neighbours(skill: Path) -> None:
    data = json.loads((skill / "evals/evals.json").read_text(encoding="utf-8"))
    keys = {"id", "prompt", "expected_output", "files", "expected_skill", "assertions"}
    assert data["skill_name"] == skill.name
    assert all(set(case) == keys and case["assertions"] for case in data["evals"])
    assert [case["id"] for case in data["evals"]] == list(range(1, len(data["evals"]) + 1))
    assert (
        {skill.name, None} <= {case["expected_skill"] for case in data["evals"]} <= {*(s.name for s in SKILLS), None}
    )


@each_skill
def test_every_neighbour_has_a_near_miss(skill: Path) -> None:
    _, body = frontmatter(skill)
    cases = json.loads((skill / "evals/evals.json").read_text(encoding="utf-8"))["evals"]
    turned_away = [case["expected_skill"] for case in cases if case["expected_skill"] != skill.name]
    if skill.name == "skillgen":
        named = {other.name for other in SKILLS} - {"skillgen"}
    else:
        (listed,) = re.findall(r"^Leave it alone .*:\n\n((?:[- ] .+\n)+)", body, re.MULTILINE)
        named = {other.name for other in SKILLS if f"`{other.name}`" in listed}
        assert len(turned_away) >= listed.count("\n- ") + 1
    assert named and named <= set(turned_away)


def claims(card: dict[str, Any]) -> list[dict[str, Any]]:
    return [*card.get("claims", []), *(claim for t in card.get("techniques", []) for claim in t["claims"])]


@pytest.mark.parametrize("path", [ROOT / "card.yaml", *(skill / "config/card.yaml" for skill in SKILLS)], ids=str)
def test_every_claim_has_a_level_and_evidence_that_exists(path: Path) -> None:
    card = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert card["title"] and claims(card)
    for claim in claims(card):
        assert claim["level"] in LEVELS and claim["statement"]
        assert all((ROOT / place).exists() for place in claim["evidence"])
        if claim["level"].endswith("_verified"):
            reports = [
                json.loads((ROOT / place).read_text()) for place in claim["evidence"] if place.endswith(".json")
            ]
            assert reports, f"{claim['id']}: a verified claim points at the report of a run"


def test_the_card_names_our_techniques() -> None:
    assert [technique["name"] for technique in CARD["techniques"]] == registry.names()
    for technique in CARD["techniques"]:
        assert (ROOT / technique["skill"] / "SKILL.md").is_file()


@each_skill
@pytest.mark.parametrize(
    "command", [["agentskills", "validate"], ["skillsaw", "lint", "--strict"]], ids=lambda c: c[0]
)
def test_published_validators_find_nothing(skill: Path, command: list[str]) -> None:
    program = shutil.which(command[0], path=sysconfig.get_path("scripts"))
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([program, *command[1:], str(skill)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
