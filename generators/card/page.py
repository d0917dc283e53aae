"""docs/compatibility.md: every family of every release by technique, with outcome, reason and level of proof."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from skillgen.card.evidence import Cell, Proof
from skillgen.card.facts import Facts
from skillgen.card.file import LEVELS
from skillgen.card.levels import Evidence
from skillgen.kernel.product import product as about

PAGE = "docs/compatibility.md"
SAME = ("outcome", "reason", "plannable")
HEAD = """\
# Compatibility

<!-- Made by `skillgen card page` from docs/compatibility.json, card.yaml and proof/. Not to be edited by hand. -->

Every family of every release, by technique. The outcomes and reasons are those of `skillgen scan` on the release; the
levels of proof come from the eval reports in [proof/](../proof). `make compatibility` fetches the releases and makes
this page anew.

| in the first table of a technique | meaning |
|---|---|
| `cpu`, `gpu`, `cluster` | can be patched; a run of the patched code passed with gloo on CPUs, with NCCL on GPUs, with NCCL on several hosts |
| `code` | can be patched: the patch was made for this release, it parses and compiles; no run of today's code |
| `upgrade, ...` | the release has a weaker or defective form, which the patch replaces; `...` as above |
| `applicable`, `upgrade` | sound there, but no adapter writes the patch yet |
| `refused`, `upstream`, `drift`, `candidate` | the outcome of `skillgen scan`; see the README |
| empty | the release has no such family |

The second table gives the reason, where the newest of these releases shows it, and the claims of
[card.yaml](../card.yaml) that a report shows.
"""  # noqa: E501


def render(facts: Facts, kept: dict[str, Evidence]) -> str:
    """The page's text, from the facts and from what is kept of each technique."""
    parts = [HEAD]
    for name, evidence in kept.items():
        parts.append(f"## {name}\n")
        if on := evidence.processors():
            parts.append(f"Today's code ran on {' and on '.join(on)}.\n")
        for product, releases in facts.items():
            rows = [(release, row) for release, told in releases.items() for row in told["rows"]]
            if rows := [(release, row) for release, row in rows if row["technique"] == name]:
                commit = releases.get("main", {}).get("commit")
                parts.append(f"### {about(product).title}{f' (main at {commit[:9]})' if commit else ''}\n")
                parts += [_matrix(product, [*releases], rows, evidence), _details(product, rows, evidence)]
    return "\n".join(parts)


Rows = list[tuple[str, dict[str, Any]]]  # release, row of a scan


def _matrix(product: str, releases: list[str], rows: Rows, evidence: Evidence) -> str:
    lines = [f"| family | {' | '.join(releases)} |", "|---" * (len(releases) + 1) + "|"]
    by_cell = {(release, row["family"]): row for release, row in rows}
    for family in sorted({row["family"] for _, row in rows}):
        cells = []
        for release in releases:
            row = by_cell.get((release, family))
            cells.append(_word(row, evidence.shown((product, release, family))) if row else "")
        lines.append(f"| {family} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _word(row: dict[str, Any], shown: dict[str, Proof]) -> str:
    if not row["plannable"]:
        return str(row["outcome"])
    level = _level(row, shown).removesuffix("_verified")
    return f"upgrade, {level}" if row["outcome"] == "upgrade" else level


def _level(row: dict[str, Any], shown: dict[str, Proof]) -> str:
    if shown:
        return LEVELS[max(LEVELS.index(str(proof.level)) for proof in shown.values())]
    return "code_verified" if row.get("planned") else "unproven"


def _details(product: str, rows: Rows, evidence: Evidence) -> str:
    """A line per family and run of releases of which scan says the same."""
    lines = ["| family | releases | outcome | reason | shown at | proof |", "|---|---|---|---|---|---|"]
    families: dict[str, Rows] = {}
    for release, row in rows:
        families.setdefault(row["family"], []).append((release, row))
    for family in sorted(families):
        for _, group in groupby(families[family], lambda pair: [pair[1][key] for key in SAME]):
            part = list(group)
            newest = part[-1][1]
            told = [(release, _proof((product, release, family), row, evidence)) for release, row in part]
            cells = [family, _span([release for release, _ in part]), newest["outcome"], _reason(newest)]
            cells += [f"`{newest['evidence']}`", _grouped(told)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _reason(row: dict[str, Any]) -> str:
    detail = str(row["detail"]).replace("|", "\\|")
    return f"`{row['reason']}`{f': {detail}' if detail else ''}"


def _span(releases: list[str]) -> str:
    return releases[0] if len(releases) == 1 else f"{releases[0]} to {releases[-1]}"


def _grouped(told: list[tuple[str, str]]) -> str:
    """What holds for which releases, said once where it holds for all."""
    groups = [(text, [release for release, _ in part]) for text, part in groupby(told, lambda pair: pair[1])]
    if len(groups) == 1:
        return told[0][1]
    return "; ".join(f"{_span(releases)}: {text}" for text, releases in groups)


def _proof(cell: Cell, row: dict[str, Any], evidence: Evidence) -> str:
    shown = evidence.shown(cell)
    if not shown:
        return _level(row, shown) if row["plannable"] else "-"
    texts = []
    for proof in dict.fromkeys(shown.values()):
        claims = ", ".join(claim for claim, best in shown.items() if best is proof)
        texts.append(f"[{proof.level}](../{proof.place}): {claims}")
    return "; ".join(texts)
