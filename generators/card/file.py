"""The pack's card and the cards of its skills as files: read and checked, written in one form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from skillgen.kernel import resources
from skillgen.kernel import yaml as card_yaml
from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.kernel.form import unlike

LEVELS = ("unproven", "documented", "code_verified", "cpu_verified", "gpu_verified", "cluster_verified")
RUN = LEVELS[3:]  # what only a run of the code as it is gives
CARD, PROOF = "card.yaml", "proof"
HEADER = """\
# The pack's card. `level`, `evidence` and `processors` are filled by `skillgen card update REPORT...` from eval
# reports, never by hand, and `skillgen card check` fails where they say more or less than those. The other keys are
# written by hand; CONTRIBUTING.md explains them.
"""
TARGET = {"product": str, "releases": [str], "families": [str]}
ITEM = {
    "kinds?": [str],
    "claims?": [str],
    "releases?": {"*": [str]},
    "families?": [str],
    "cases?": [str],
    "may_skip?": [str],
}
ITEMS = {key.removesuffix("?") for key in ITEM}
CLAIM = {"id": str, "statement": str, "level": str, "evidence": [str], "least?": str, "proven_by?": [ITEM]}
TECHNIQUE = {"name": str, "skill": str, "targets": [TARGET], "processors?": [str], "claims": [CLAIM]}
FORM = {"releases": {"*": [str]}, "main?": {"*": str}, "techniques": [TECHNIQUE]}


@dataclass(frozen=True)
class Pack:
    """A checkout of the pack, where the card and its evidence lie."""

    root: Path

    @cached_property
    def card(self) -> dict[str, Any]:
        """card.yaml, its form checked."""
        return parse(read(self.root / CARD), str(self.root / CARD))

    def technique(self, name: str) -> dict[str, Any]:
        entry: dict[str, Any] | None = next((e for e in self.card["techniques"] if e["name"] == name), None)
        if entry is None:
            message = f"the card has no technique called {name!r}"
            raise SkillgenError("unknown-technique", message, where=str(self.root / CARD), exit_code=USAGE)
        return entry

    def skill_card(self, entry: dict[str, Any]) -> Path:
        return Path(self.root, entry["skill"], "config", CARD)


def open_pack(folder: str | None) -> Pack:
    """The checkout in `folder`, or the one that this program runs from."""
    root = Path(folder) if folder else resources.root()
    if not (root / CARD).is_file() or not (root / "evals").is_dir():
        raise SkillgenError(
            "not-a-checkout",
            f"the card is kept in a checkout of the pack, with its code and the reports, and {root} is none",
            where=str(root),
            hint="skillgen card ACTION --pack CHECKOUT",
            exit_code=USAGE,
        )
    return Pack(root)


def read(path: Path) -> str:
    """The text of a card; raises where there is none to read."""
    text, wrong = card_yaml.read(path)
    if wrong:
        raise _damaged(wrong, str(path))
    return text


def parse(text: str, where: str) -> dict[str, Any]:
    """The card; raises where its form is not as the rest relies on."""
    card, wrong = card_yaml.load(text)
    if not wrong and (place := unlike(card, FORM)):
        wrong = f"{place} is missing or of another type"
    if wrong := wrong or _fault(card):
        raise _damaged(wrong, where)
    return card  # type: ignore[no-any-return]


def _damaged(wrong: str, where: str) -> SkillgenError:
    return SkillgenError("card-damaged", wrong, where=where, hint="correct the card by hand")


def _fault(card: dict[str, Any]) -> str:
    for entry in card["techniques"]:
        name = entry["name"]
        ids = [claim["id"] for claim in entry["claims"]]
        if len(ids) != len(set(ids)):
            return f"{name}: two claims have one id"
        if any(part in ("", ".", "..") for part in entry["skill"].split("/")):
            return f"{name}: skill {entry['skill']!r} is no folder of the pack"
        for claim in entry["claims"]:
            told = f"{name}, {claim['id']}"
            if claim["level"] not in LEVELS or claim.get("least", RUN[0]) not in RUN:
                return f"{told}: a level is one of {', '.join(LEVELS)}, and `least` one of the last {len(RUN)}"
            for item in claim.get("proven_by", ()):
                if ("kinds" in item) == ("claims" in item) or item.keys() - ITEMS:
                    return f"{told}: proven_by takes {', '.join(sorted(ITEMS))}, with either kinds or claims: {item}"
                plain = {c["id"] for c in entry["claims"] if not any("claims" in i for i in c.get("proven_by", ()))}
                if unknown := set(item.get("claims", ())) - plain:
                    return f"{told}: no claim with cases of its own is called {', '.join(sorted(unknown))}"
                if wrong := _unlisted(card, item.get("releases", {})):
                    return f"{told}: {wrong}"
        for place in entry["targets"]:
            if wrong := _unlisted(card, {place["product"]: place["releases"]}) or place.keys() ^ TARGET.keys():
                return f"{name}: {wrong}, in a target of product, releases and families: {place}"
    return ""


def _unlisted(card: dict[str, Any], places: dict[str, list[str]]) -> str:
    for product, releases in places.items():
        known = [*card["releases"].get(product, ()), "main"]
        if unknown := [release for release in releases if release not in known]:
            return f"{product} {unknown[0]} is not among `releases`"
    return ""


def dump(card: dict[str, Any]) -> str:
    """The card's text, in the one form that it has."""
    return HEADER + _yaml(card)


def _yaml(data: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Lists of short words on one line, all others indented; nothing is said by reference."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
            return super().increase_indent(flow, False)

    def sequence(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
        words = all(isinstance(item, str) and len(item) < 40 and "/" not in item for item in items)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=words)

    Dumper.add_representer(list, sequence)
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=118))


def skill_text(text: str, entry: dict[str, Any], summary: dict[str, Any]) -> str:
    """A skill's card with what it says of proof replaced by what the pack's card says."""
    claims = [{key: claim[key] for key in ("id", "statement", "level", "evidence")} for claim in entry["claims"]]
    for key, value in {**summary, "claims": claims}.items():
        block = _yaml({key: value})
        found = re.search(rf"^{key}:.*\n(?:(?:[ -].*)?\n)*", text, flags=re.MULTILINE)
        text = text[: found.start()] + block + text[found.end() :] if found else text + block
    return text
