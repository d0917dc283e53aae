"""The rules of a skill's two data files: its card of claims and its evals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skillgen.card_file import LEVELS
from skillgen.skill_rules import CARD, EVALS, Rule, Skill

TEXT, TEXTS, RECORDS = "text", "a list of texts", "a list of records"
CARD_KEYS = {  # what a value is; the first five and `claims` are required
    "title": TEXT,
    "summary": TEXT,
    "validation_status": TEXT,
    "validated_on": TEXTS,
    "evidence": TEXTS,
    "claims": RECORDS,
    "feature_meaning": TEXT,
    "recommended_path": TEXT,
    "known_limitations": TEXTS,
    "known_constraints": TEXTS,
    "follow_up_validation": TEXTS,
    "training_dimensions": TEXTS,
    "failure_modes": RECORDS,
    "measured_results": RECORDS,
}
REQUIRED = tuple(CARD_KEYS)[:6]
RECORD_KEYS = {
    "claims": ("id", "statement", "level", "evidence"),
    "failure_modes": ("name", "symptom", "likely_cause", "fix"),
    "measured_results": ("what", "figure", "command"),
}
CASE_KEYS = {"id", "prompt", "expected_output", "files", "expected_skill", "assertions"}
POSITIVES = 4


def card(skill: Skill) -> None:
    """The card is there, linked, of the schema, and its evidence exists."""
    path = skill.folder / CARD
    if f"({CARD})" not in skill.text:
        skill.say("card", f"link {CARD} from SKILL.md")
    if not path.is_file():
        skill.say("card", f"write {CARD}", CARD)
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip(" -") for line in text.splitlines()]
    for key, do in faults(text, _pack(skill.folder)):
        number = next((n for n, line in enumerate(lines, 1) if key and line.startswith(key)), 0)
        skill.say("card", do, CARD, number)


def faults(text: str, pack: Path | None) -> Iterator[tuple[str, str]]:
    """What is wrong with a card: the beginning of the line that is meant, and what to do.

    Evidence lies in the pack's tree, and is looked for where that is; an installed skill comes without it.
    """
    from yaml import YAMLError, safe_load

    try:
        given = safe_load(text)
    except YAMLError as error:
        yield "", f"write YAML: {str(error).splitlines()[0]}"
        return
    if not isinstance(given, dict):
        yield "", "write a mapping with " + ", ".join(REQUIRED)
        return
    for key in REQUIRED:
        if key not in given:
            yield "", f"add {key}"
    for key, value in given.items():
        if key not in CARD_KEYS:
            yield f"{key}:", f"remove {key}; known: {', '.join(CARD_KEYS)}"
        elif not _is(value, CARD_KEYS[key]):
            yield f"{key}:", f"make {key} {CARD_KEYS[key]}"
        elif key in RECORD_KEYS:
            yield from _records(key, value)
    if given.get("validation_status") not in LEVELS:
        yield "validation_status:", f"validation_status is one of {', '.join(LEVELS)}"
    claims = [c for c in given.get("claims") or () if isinstance(c, dict) and isinstance(c.get("evidence"), list)]
    for claim in claims:
        if claim.get("level") not in LEVELS:
            yield f"id: {claim.get('id')}", f"level of {claim.get('id')} is one of {', '.join(LEVELS)}"
        elif claim["level"].endswith("_verified") and not any(str(p).endswith(".json") for p in claim["evidence"]):
            yield f"id: {claim.get('id')}", f"{claim.get('id')} is {claim['level']}: name the report of a run, a .json"
    known = [LEVELS.index(claim["level"]) for claim in claims if claim.get("level") in LEVELS]
    if known and given.get("validation_status") in LEVELS[max(known) + 1 :]:
        yield "validation_status:", "no claim has that level: lower validation_status"
    if pack:
        yield from _evidence(given, claims, pack)


def _evidence(given: dict[str, Any], claims: list[dict[str, Any]], pack: Path) -> Iterator[tuple[str, str]]:
    cited = given.get("evidence")
    places = [("evidence:", place) for place in (cited if isinstance(cited, list) else ())]
    places += [(f"id: {claim.get('id')}", place) for claim in claims for place in claim["evidence"]]
    for key, place in places:
        if not (pack / str(place)).exists():
            yield key, f"{place} does not exist"
        elif str(place).endswith(".json") and not _passed(pack / str(place)):
            yield key, f"{place} is no report of a run that passed"


def _passed(report: Path) -> bool:
    try:
        return json.loads(report.read_bytes())["ok"] is True
    except (ValueError, KeyError, TypeError):
        return False


def _records(key: str, records: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for number, record in enumerate(records, 1):
        for name in RECORD_KEYS[key]:
            wanted = TEXTS if name == "evidence" else TEXT
            if not _is(record.get(name), wanted):
                yield f"{key}:", f"give number {number} of {key} {name}, {wanted}"


def _is(value: Any, kind: str) -> bool:
    if kind == TEXT:
        return isinstance(value, str) and bool(value.strip())
    inner = str if kind == TEXTS else dict
    return isinstance(value, list) and all(isinstance(item, inner) for item in value)


def _pack(folder: Path) -> Path | None:
    """The source tree of the pack that the skill is in."""
    tree = folder.parents[1] if len(folder.parents) > 1 else folder
    return tree if (tree / "card.yaml").is_file() and (tree / "pyproject.toml").is_file() else None


def evals(skill: Skill) -> None:
    """The object form, whole cases, four or more that want this skill and some that must not have it."""
    path = skill.folder / EVALS
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        skill.say("evals", f"write {EVALS}: {type(error).__name__}", EVALS)
        return
    if not isinstance(data, dict) or set(data) != {"skill_name", "evals"} or not isinstance(data["evals"], list):
        skill.say("evals", "take the object form: skill_name and evals, no list", EVALS)
        return
    if data["skill_name"] != skill.name:
        skill.say("evals", f"skill_name is {skill.name}", EVALS)
    for number, case in enumerate(data["evals"], 1):
        if do := _case(case, number):
            skill.say("evals", f"case {number}: {do}", EVALS)
    cases = [case for case in data["evals"] if isinstance(case, dict)]
    if sum(case.get("expected_skill") == skill.name for case in cases) < POSITIVES:
        skill.say("evals", f"add cases that want this skill: {POSITIVES} at least", EVALS)
    if not any(case.get("expected_skill", "") is None for case in cases):
        skill.say("evals", "add a near miss that must not use this skill: expected_skill null", EVALS)


def _case(case: Any, number: int) -> str:
    if not isinstance(case, dict) or set(case) != CASE_KEYS:
        return f"its keys are {', '.join(sorted(CASE_KEYS))}"
    if case["id"] is True or case["id"] != number:
        return f"its id is the integer {number}"
    if not all(_is(case[key], TEXT) for key in ("prompt", "expected_output")):
        return "prompt and expected_output are text"
    if not all(_is(case[key], TEXTS) for key in ("files", "assertions")) or not case["assertions"]:
        return "files and assertions are lists of texts, and there is an assertion"
    if case["expected_skill"] is not None and not _is(case["expected_skill"], TEXT):
        return "expected_skill is a name or null"
    return ""


RULES: tuple[Rule, ...] = (card, evals)
