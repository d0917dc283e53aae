"""Why a technique patches nothing of what was asked for, where that shows, and what can be done instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import DRIFT, REFUSED, USAGE, SkillgenError
from skillgen.kernel.model import Outcome, Row

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

FEW = 3  # families of one reason that are shown with their places
NO_ADAPTER = "no-adapter-yet", "the technique applies, but this version cannot write the patch"


def absent(target: Target, technique: str, products: Sequence[str]) -> SkillgenError:
    """A technique for these products knows nothing in this target."""
    card = _card()
    this = f"{target.product} {target.version or '(version unknown)'}"
    if target.product in products:
        message = f"{technique} finds none of its families in this {this}"
    else:
        message = f"{technique} is for {' and '.join(products)}, and this is {this}"
    others = [t["name"] for t in card["techniques"] if t["name"] != technique and _places(card, t["name"], target)]
    hints = [_releases(card, target, technique)]
    if others:
        hints.append(f"techniques for {target.product}: {', '.join(others)}; see `skillgen scan {target.root}`")
    return SkillgenError("nothing-to-patch", message, where=str(target.package), hint=_joined(hints))


def unknown(target: Target, technique: str, family: str, known: Iterable[str]) -> SkillgenError:
    """No family of this name is in this target."""
    elsewhere = _releases(_card(), target, technique, family)
    hints = [f"one of: {', '.join(known)}", elsewhere and f"for {family} {elsewhere}"]
    message = f"this target has no family called {family!r}"
    return SkillgenError("unknown-family", message, hint=_joined(hints), exit_code=USAGE)


def refusal(
    target: Target, technique: str, rows: Sequence[Row], refused: Sequence[Row], *, named: bool
) -> SkillgenError:
    """Of `rows`, those asked for that cannot be patched; one that drifted comes first, as it can be repaired."""
    refused = sorted(refused, key=lambda row: row.outcome is not Outcome.DRIFT)
    drift = refused[0].outcome is Outcome.DRIFT
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in refused:
        groups.setdefault((row.outcome.value, *_told(row)), []).append(row)
    ours = named or drift  # the error is that of the first family
    told = [_sentence(group, places=len(refused) > 1, reason=not ours or len(groups) > 1) for group in groups.values()]
    if not ours:
        head = "no family of this target can be patched:"
        told = [f"{head} {told[0]}"] if len(told) == 1 else [head, *told]
    places = dict.fromkeys(row.evidence[0] for group in groups.values() for row in group[:1] if row.evidence)
    return SkillgenError(
        _told(refused[0])[0] if ours else "nothing-to-patch",
        "\n  ".join(told),
        where="; ".join(places),
        hint=_next(target, technique, rows, refused),
        exit_code=DRIFT if drift else REFUSED,
    )


def _told(row: Row) -> tuple[str, str]:
    """The reason why this row cannot be patched, as a word and as a sentence."""
    return NO_ADAPTER if row.outcome is Outcome.APPLICABLE else (row.reason, row.detail or row.reason)


def _sentence(group: Sequence[Row], *, places: bool, reason: bool) -> str:
    shown = places and len(group) <= FEW
    names = [f"{row.family} ({row.evidence[0]})" if shown and row.evidence else row.family for row in group]
    word, detail = _told(group[0])
    outcome = group[0].outcome.value + (f" ({word})" if reason else "")
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {outcome}: {detail}"


def _next(target: Target, technique: str, rows: Sequence[Row], refused: Sequence[Row]) -> str:
    """What the user can do: nothing leads to a place that has nothing to offer."""
    hints = list(refused[0].notes) if refused[0].outcome is Outcome.DRIFT else []
    hints.append(_releases(_card(), target, technique, *(row.family for row in refused)))
    if here := [row.family for row in rows if row.plannable and row not in refused]:
        hints.append(f"can be patched here: {', '.join(here)}")
    if any(_told(row) == NO_ADAPTER for row in refused):
        hints.append("an adapter has to be written first: see CONTRIBUTING.md")
    return _joined(hints) or "report the reason: no release that this pack knows can be patched there"


def _joined(hints: Iterable[str]) -> str:
    return "; ".join(filter(None, hints))


def _card() -> dict[str, Any]:
    from skillgen.kernel import resources, yaml

    card, wrong = yaml.load(yaml.read(resources.root() / "card.yaml")[0])
    return card if isinstance(card, dict) and not wrong else {"techniques": []}


def _places(card: dict[str, Any], technique: str, target: Target | None = None) -> list[dict[str, Any]]:
    """What the card has a technique for: product, releases, families."""
    found = [place for entry in card["techniques"] if entry["name"] == technique for place in entry["targets"]]
    return [place for place in found if target is None or place["product"] == target.product]


def _releases(card: dict[str, Any], target: Target, technique: str, *families: str) -> str:
    """The other releases of the target's product that the card has the technique for, and one of the families."""
    places = [p for p in _places(card, technique, target) if not families or set(families) & set(p["families"])]
    releases = dict.fromkeys(release for place in places for release in place["releases"])
    main = card.get("main", {}).get(target.product, "")
    names = [f"main ({main})" if r == "main" else r for r in releases if r != target.version]
    return f"use a supported release: {target.product} {', '.join(names)}" if names else ""
