"""From the reports that the card keeps to the level of each claim: a pure function, so that it can be checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skillgen.card import evidence as card_proof
from skillgen.card import skills as card_skills
from skillgen.card.evidence import Cell, Part, Proof
from skillgen.card.file import LEVELS, RUN, Pack

if TYPE_CHECKING:
    from skillgen.report.code_hash import Hashes


@dataclass(frozen=True)
class Verdict:
    """What the reports say of a claim."""

    level: str
    evidence: list[str]
    why: str = ""  # what is missing, where it is no more than this


@dataclass(frozen=True)
class Evidence:
    """A technique's entry in the card, the reports that are kept for it, and the hashes of its code as it is now."""

    entry: dict[str, Any]
    proofs: list[Proof]
    now: Hashes

    @classmethod
    def of(cls, pack: Pack, entry: dict[str, Any], fresh: Iterable[Proof] = ()) -> Evidence:
        from skillgen.report.code_hash import Hashes

        return cls(entry, card_proof.load(pack, entry["name"], fresh), Hashes(entry["name"], pack.root))

    @classmethod
    def of_all(cls, pack: Pack, fresh: Iterable[Proof] = ()) -> dict[str, Evidence]:
        """By technique, with reports that are not written yet."""
        return {entry["name"]: cls.of(pack, entry, fresh) for entry in pack.card["techniques"]}

    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each claim, by id."""
        return {claim["id"]: self._verdict(claim) for claim in self.entry["claims"]}

    def shown(self, cell: Cell) -> dict[str, Proof]:
        """The claims that a report of today's code shows for one family on one release, each with its best report."""
        product, release, family = cell
        found: dict[str, Proof] = {}
        here = [p for p in self.proofs if (p.product, p.release) == (product, release) and p.is_of(self.now, family)]
        for claim in self.entry["claims"]:
            if any("claims" in item for item in claim.get("proven_by", ())):
                continue  # it says of other claims where else they hold, which they say here themselves
            every = list(parts(self.entry, claim))
            asked = [part for part in every if cell in part.cells]
            # a release that the claim does not need is judged like those that it does
            asked = asked or [part for part in every if (product, family) in {(p, f) for p, _, f in part.cells}]
            enough = [p for p in here if _rank(p) >= RUN.index(claim.get("least", RUN[0]))]
            full = [p for p in enough if asked and not any(p.lacks(part, family) for part in asked)]
            if full:
                found[claim["id"]] = max(full, key=_rank)
        return found

    def processors(self) -> list[str]:
        """Those on which runs of the code as it is have passed, each once."""
        families = {proof.place: {row["family"] for row in proof.record["rows"]} for proof in self.proofs}
        current = [p for p in self.proofs if any(p.is_of(self.now, family) for family in families[p.place])]
        return sorted({proof.processor for proof in current})

    def summary(self) -> dict[str, Any]:
        """What a skill's card says at its head: the level that all claims have, but for those that ask for more."""
        verdicts = self.verdicts()
        claims = [{**claim, "level": verdicts[claim["id"]].level} for claim in self.entry["claims"]]
        evidence = sorted({place for verdict in verdicts.values() for place in verdict.evidence})
        ran = {proof.place: f"{proof.product} {proof.release}, {proof.level}" for proof in self.proofs}
        return {
            "validation_status": card_skills.status(claims),
            "validated_on": sorted({ran[place] for place in evidence if place in ran}),
            "evidence": evidence,
        }

    def _verdict(self, claim: dict[str, Any]) -> Verdict:
        by_hand = claim["level"] if claim["level"] in LEVELS[:2] else LEVELS[0]
        papers = claim["evidence"] if by_hand == "documented" else []
        least = RUN.index(claim.get("least", RUN[0]))
        chosen: list[Proof] = []
        missing = stale = ""
        for part in parts(self.entry, claim):
            for product, release, family in part.cells:
                here = [p for p in self.proofs if (p.product, p.release) == (product, release) and _rank(p) >= least]
                lacks = {p.place: p.lacks(part, family) for p in here}
                full = [p for p in here if not lacks[p.place]]
                best = max(full, key=lambda p: (p.is_of(self.now, family), _rank(p)), default=None)
                if best is None:
                    nearest = max(here, key=lambda p: len(p.rows.get((family, part.kind), [])), default=None)
                    none = f"no report of {RUN[least].removesuffix('_verified')} level"
                    reason = lacks[nearest.place] if nearest else none
                    missing = missing or f"{product} {release}, {family}, {part.kind}: {reason}"
                else:
                    chosen.append(best)
                    current = best.is_of(self.now, family)
                    stale = stale or ("" if current else f"{best.place} is of other code for {family}")
        if missing or not chosen:
            return Verdict(by_hand, papers, missing or "the claim names no cases that prove it")
        evidence = sorted({proof.place for proof in chosen})
        if stale:
            return Verdict("code_verified", evidence, stale)
        return Verdict(RUN[min(_rank(proof) for proof in chosen)], evidence)


def _rank(proof: Proof) -> int:
    return RUN.index(proof.level) if proof.level else -1


def parts(entry: dict[str, Any], claim: dict[str, Any]) -> Iterator[Part]:
    """What a claim's `proven_by` asks for; an item that names claims asks for theirs, on other releases."""
    for item in claim.get("proven_by", ()):
        if "claims" in item:
            same = [c for c in entry["claims"] if c["id"] in item["claims"]]
            instead = {key: item[key] for key in ("releases", "families") if key in item}
            for other in same:
                yield from parts(entry, {"proven_by": [{**theirs, **instead} for theirs in other["proven_by"]]})
        else:
            places, cases = tuple(_cells(entry, item)), tuple(item.get("cases", ["*"]))
            for kind in item["kinds"]:
                yield Part(kind, places, cases, tuple(item.get("may_skip", ())))


def _cells(entry: dict[str, Any], item: dict[str, Any]) -> Iterator[Cell]:
    """`releases` defaults to all of the technique's targets but main, `families` to those that are patched there.

    Of `families`, one counts where it is patched; one that is patched nowhere, a control for one, counts everywhere.
    """
    there: dict[tuple[str, str], list[str]] = {}
    for target in entry["targets"]:
        for release in target["releases"]:
            there.setdefault((target["product"], release), []).extend(target["families"])
    known = {family for families in there.values() for family in families}
    named = item.get("releases")
    places = [(p, r) for p in named for r in named[p]] if named else [place for place in there if place[1] != "main"]
    for place in places:
        patched = there.get(place, [])
        for family in item.get("families", patched):
            if family in patched or family not in known:
                yield (*place, family)
