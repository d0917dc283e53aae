"""What a skill's card may say: the pack's claims of its technique; of a skill without one, what no run has to show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skillgen.card.file import CARD, LEVELS, Pack
from skillgen.kernel import yaml as card_yaml

SAME = ("id", "statement", "level", "evidence")
FREE = LEVELS[:2]  # what needs no report
UPDATE = "let `skillgen card update` write it"


def others(pack: Pack) -> list[str]:
    """The skills with a card that are of no technique."""
    known = {entry["skill"] for entry in pack.card["techniques"]}
    names = sorted(path.parents[1].name for path in (pack.root / "skills").glob(f"*/config/{CARD}"))
    return [name for name in names if f"skills/{name}" not in known]


def rows(pack: Pack, skill: str) -> Iterator[tuple[str, str, str, str]]:
    """Of such a skill's card: each claim with its level, the file, and what is wrong with it; then the rest."""
    place = f"skills/{skill}/config/{CARD}"
    text, wrong = card_yaml.read(pack.root / place)
    card, wrong = (None, wrong) if wrong else card_yaml.load(text)
    if wrong or not isinstance(card, dict):
        yield "", "", place, wrong or "it is no mapping"
        return
    found = list(faults(pack, skill, card))
    for claim in claims(card):
        given = claim.get("evidence")
        for path in given if isinstance(given, list) else ():
            if not card_yaml.within(pack.root, str(path)):
                found.append((str(claim.get("id")), f"its evidence is missing: {path}"))
        if claim.get("level") == "documented" and not given:
            found.append((str(claim.get("id")), "documented, and it names no page"))
    for claim in claims(card):
        name = str(claim.get("id"))
        told = [do for about, do in found if about == name]
        yield name, str(claim.get("level")), place, "; ".join(told)
    ids = {str(claim.get("id")) for claim in claims(card)}
    for why in [do for about, do in found if about not in ids]:
        yield "", "", place, why


def claims(card: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims, as far as they are such."""
    given = card.get("claims")
    return [claim for claim in given if isinstance(claim, dict)] if isinstance(given, list) else []


def faults(pack: Pack, skill: str, card: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The claim or the key that is meant, and what to do about it."""
    entry = next((entry for entry in pack.card["techniques"] if Path(entry["skill"]).name == skill), None)
    if entry is None:
        yield from _unjudged(skill, card)
        return
    wanted = {claim["id"]: {key: claim[key] for key in SAME} for claim in entry["claims"]}
    given = [(str(claim.get("id")), {key: claim.get(key) for key in SAME}) for claim in claims(card)]
    for name, _ in given:
        if name not in wanted:
            yield name, f"{name} is no claim of {CARD}: {UPDATE}"
    for name, claim in wanted.items():
        if [says for other, says in given if other == name] != [claim]:
            yield name, f"{name} is {claim['level']} in {CARD}, once, with that statement and evidence: {UPDATE}"
    places = sorted({place for claim in entry["claims"] for place in claim["evidence"]})
    for key, value in (("validation_status", status(entry["claims"])), ("evidence", places)):
        if card.get(key) != value:
            yield key, f"{key} is {value or 'empty'} by {CARD}: {UPDATE}"


def status(given: list[dict[str, Any]]) -> str:
    """The level that all claims have, but for those that ask for more than a run on CPUs and have nothing yet."""
    counted = [claim["level"] for claim in given if claim["level"] != LEVELS[0] or "least" not in claim]
    return min(counted, key=LEVELS.index, default=LEVELS[0])


def _unjudged(skill: str, card: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """No eval is of such a skill, so no report can be of it."""
    levels = []
    for claim in claims(card):
        name, level = str(claim.get("id")), claim.get("level")
        if level not in FREE:
            yield name, f"no eval judges {skill}, so no report shows {level}: {' or '.join(FREE)}"
        levels.append(level if level in LEVELS else LEVELS[0])
    least = min(levels, key=LEVELS.index, default=LEVELS[0])
    if card.get("validation_status") in LEVELS[LEVELS.index(least) + 1 :]:
        yield "validation_status", f"validation_status is {least}, as the least of its claims"
    if card.get("validated_on"):
        yield "validated_on", f"validated_on is empty: no eval judges {skill}"
    cited = [place for claim in claims(card) if isinstance(claim.get("evidence"), list) for place in claim["evidence"]]
    given = card.get("evidence")
    if loose := [str(place) for place in given if place not in cited] if isinstance(given, list) else []:
        yield "evidence", f"no claim rests on {loose[0]}: remove it"
