"""The rules of a skill's two data files: its card of claims and its evals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skillgen.card import skills as card_skills
from skillgen.card.file import LEVELS, Pack
from skillgen.kernel import yaml as card_yaml
from skillgen.kernel.errors import SkillgenError
from skillgen.skillpack.skill import CARD, EVALS, MOST, Rule, Skill

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
    """The card is there, linked, of the schema, its evidence exists, and it says no more than the pack's card."""
    path = skill.folder / CARD
    if f"({CARD})" not in skill.text:
        skill.say("card", f"link {CARD} from SKILL.md")
    if not path.exists():
        skill.say("card", f"write {CARD}", CARD)
        return
    text, wrong = card_yaml.read(path)
    if wrong:
        skill.say("card", f"write YAML: {wrong}", CARD)
        return
    lines = [line.strip(" -") for line in text.splitlines()]
    for key, do in faults(text, skill.name, skill.pack):
        number = next((n for n, line in enumerate(lines, 1) if key and line.startswith(key)), 0)
        skill.say("card", do, CARD, number)


def faults(text: str, name: str, pack: Path | None) -> Iterator[tuple[str, str]]:
    """What is wrong with a card: the beginning of the line that is meant, and what to do.

    Evidence lies in the pack's tree, and is looked for where that is; an installed skill comes without it.
    """
    given, wrong = card_yaml.load(text)
    if wrong:
        yield "", f"write YAML: {wrong}"
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
    yield from _levels(given)
    if pack:
        yield from _evidence(given, pack)
        yield from _pack_says(given, name, Pack(pack))


def _levels(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if given.get("validation_status") not in LEVELS:
        yield "validation_status:", f"validation_status is one of {', '.join(LEVELS)}"
    claims = card_skills.claims(given)
    for claim in claims:
        name, level = claim.get("id"), claim.get("level")
        if level not in LEVELS:
            yield f"id: {name}", f"level of {name} is one of {', '.join(LEVELS)}"
        elif level.endswith("_verified") and not any(str(place).endswith(".json") for place in _cited(claim)):
            yield f"id: {name}", f"{name} is {level}: name the report of a run, a .json"
        elif level == "documented" and not _cited(claim):
            yield f"id: {name}", f"{name} is documented: name the page that says it"
    known = [LEVELS.index(claim["level"]) for claim in claims if claim.get("level") in LEVELS]
    if given.get("validation_status") in LEVELS[max(known, default=0) + 1 :]:
        yield "validation_status:", "no claim has that level: lower validation_status"


def _evidence(given: dict[str, Any], pack: Path) -> Iterator[tuple[str, str]]:
    places = [("evidence:", place) for place in _cited(given)]
    places += [(f"id: {claim.get('id')}", place) for claim in card_skills.claims(given) for place in _cited(claim)]
    for key, place in places:
        if not card_yaml.within(pack, str(place)):
            yield key, f"{str(place)[:MOST]} does not exist"
        elif str(place).endswith(".json") and not _passed(pack / str(place)):
            yield key, f"{place} is no report of a run that passed"


def _pack_says(given: dict[str, Any], name: str, pack: Pack) -> Iterator[tuple[str, str]]:
    """A level that the pack's card does not give, whatever report is named for it."""
    try:
        found = list(card_skills.faults(pack, name, given))
    except SkillgenError as error:
        found = [("", f"correct the pack's {error.where or 'card'}: {error.message}")]
    ids = {str(claim.get("id")) for claim in card_skills.claims(given)}
    for about, do in found:
        yield (f"id: {about}" if about in ids else f"{about}:" if about else ""), do


def _cited(record: dict[str, Any]) -> list[Any]:
    places = record.get("evidence")
    return places if isinstance(places, list) else []


def _passed(report: Path) -> bool:
    text, wrong = card_yaml.read(report)
    try:
        return not wrong and json.loads(text)["ok"] is True
    except (ValueError, KeyError, TypeError, RecursionError):
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


def evals(skill: Skill) -> None:
    """The object form, whole cases, four or more that want this skill, and a near miss for every neighbour."""
    text, wrong = card_yaml.read(skill.folder / EVALS)
    try:
        data = json.loads(text or "null")
    except RecursionError:
        wrong = "it is nested too deeply"
    except ValueError as error:
        wrong = f"not JSON: {error}"
    if wrong:
        skill.say("evals", f"write {EVALS}: {wrong}", EVALS)
        return
    if not isinstance(data, dict) or set(data) != {"skill_name", "evals"} or not isinstance(data["evals"], list):
        skill.say("evals", "take the object form: skill_name and evals, no list", EVALS)
        return
    if data["skill_name"] != skill.name:
        skill.say("evals", f"skill_name is {skill.name}", EVALS)
    for number, case in enumerate(data["evals"], 1):
        if do := _case(case, number):
            skill.say("evals", f"case {number}: {do}", EVALS)
    wanted = [case["expected_skill"] for case in data["evals"] if isinstance(case, dict) and "expected_skill" in case]
    if wanted.count(skill.name) < POSITIVES:
        skill.say("evals", f"add cases that want this skill: {POSITIVES} at least", EVALS)
    if wanted.count(skill.name) == len(wanted):
        skill.say("evals", "add a near miss that must not use this skill: expected_skill another, or null", EVALS)
    for name in _neighbours(skill):
        if name not in wanted:
            skill.say("evals", f"add a near miss that wants {name} instead: expected_skill is {name}", EVALS)


def _neighbours(skill: Skill) -> list[str]:
    """The other techniques for a product that this skill's technique is for, in the pack's tree."""
    try:
        card = Pack(skill.pack).card if skill.pack else {"techniques": []}
    except SkillgenError:
        return []  # the rule of the card tells
    products = {entry["name"]: {place["product"] for place in entry["targets"]} for entry in card["techniques"]}
    ours = products.get(skill.name, set())
    return [name for name, theirs in products.items() if name != skill.name and theirs & ours]


def _case(case: Any, number: int) -> str:
    if not isinstance(case, dict) or set(case) != CASE_KEYS:
        return f"its keys are {', '.join(sorted(CASE_KEYS))}"
    if type(case["id"]) is not int or case["id"] != number:
        return f"its id is the integer {number}"
    if not all(_is(case[key], TEXT) for key in ("prompt", "expected_output")):
        return "prompt and expected_output are text"
    if not all(_is(case[key], TEXTS) for key in ("files", "assertions")) or not case["assertions"]:
        return "files and assertions are lists of texts, and there is an assertion"
    if case["expected_skill"] is not None and not _is(case["expected_skill"], TEXT):
        return "expected_skill is a name or null"
    return ""


RULES: tuple[Rule, ...] = (card, evals)
