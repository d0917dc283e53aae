"""Where the card, the skills' cards and the page say other than the reports: a row per claim, a row per file."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from skillgen.card import facts as card_facts
from skillgen.card import page as card_page
from skillgen.card import skills as card_skills
from skillgen.card.file import CARD, LEVELS, RUN, Pack, dump, read, skill_text
from skillgen.card.levels import Evidence, Verdict
from skillgen.kernel import yaml as card_yaml
from skillgen.kernel.errors import SkillgenError

UPDATE = "skillgen card update"


def rows(pack: Pack) -> list[dict[str, Any]]:
    """Every claim with its level and what is wrong with it, then every made file that is not as it would be made."""
    found = []
    kept = {}
    for entry in pack.card["techniques"]:
        try:
            kept[entry["name"]] = Evidence.of(pack, entry)
        except SkillgenError as error:
            found.append(_row(entry["name"], "", "", error.where or CARD, error.message))
            continue
        verdicts = kept[entry["name"]].verdicts()
        for claim in entry["claims"]:
            wrong, file = _fault(pack, claim, verdicts[claim["id"]])
            why = "" if wrong else verdicts[claim["id"]].why
            found.append(_row(entry["name"], claim["id"], claim["level"], file, wrong, why))
    found += [
        _row(skill, claim, level, place, wrong)
        for skill in card_skills.others(pack)
        for claim, level, place, wrong in card_skills.rows(pack, skill)
    ]
    if not any(row["state"] == "problem" for row in found):
        stale = [name for name, text in made(pack, kept).items() if _read(pack, name) != text]
        found += [_row("", "", "", name, f"is not what `{UPDATE}` makes of the card") for name in stale]
    return found


def made(pack: Pack, kept: dict[str, Evidence]) -> dict[str, str]:
    """The text of every file that is made from the reports: the card, the skills' cards, the page."""
    card = deepcopy(pack.card)
    files = {}
    for entry in card["techniques"]:
        evidence = kept[entry["name"]]
        verdicts = evidence.verdicts()
        entry["processors"], entry["claims"] = evidence.processors(), entry.pop("claims")
        for claim in entry["claims"]:
            claim.update(level=verdicts[claim["id"]].level, evidence=verdicts[claim["id"]].evidence)
        path = pack.skill_card(entry)
        if path.is_file():
            name = path.relative_to(pack.root).as_posix()
            files[name] = skill_text(read(path), entry, evidence.summary())
    files[CARD] = dump(card)
    if facts := card_facts.load(pack):
        files[card_page.PAGE] = card_page.render(facts, kept)
    return files


def _fault(pack: Pack, claim: dict[str, Any], verdict: Verdict) -> tuple[str, str]:
    """What is wrong with a claim, and in which file; empty if it says what its reports say."""
    level, evidence = claim["level"], claim["evidence"]
    for place in evidence:
        if not card_yaml.within(pack.root, place):
            return f"{level}, and its evidence is missing", place
    if level == "documented" and not evidence:
        return f"{level}, and it names no page", CARD
    if level != verdict.level:
        file = next(iter([*evidence, *verdict.evidence]), CARD)
        stronger = LEVELS.index(level) > LEVELS.index(verdict.level)
        why = f": {verdict.why}" if verdict.why else ""
        said = "the reports say no more than" if stronger else "the reports say"
        return f"{level}, and {said} {verdict.level}{why}", file
    if sorted(evidence) != verdict.evidence and level in RUN:
        return f"its evidence is {', '.join(verdict.evidence)}, and it names {', '.join(evidence) or 'none'}", CARD
    return "", (evidence or [CARD])[0]


def _read(pack: Pack, name: str) -> str:
    path = pack.root / name
    return read(path) if path.is_file() else ""


def _row(technique: str, claim: str, level: str, file: str, wrong: str, why: str = "") -> dict[str, Any]:
    state = "problem" if wrong else "ok"
    return {"technique": technique, "claim": claim, "level": level, "state": state, "file": file, "why": wrong or why}
