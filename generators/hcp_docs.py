"""Corrections of a target's pages on hierarchical context parallelism: what our patch changes, and what was wrong."""

from __future__ import annotations

from typing import NamedTuple

from skillgen.hcp_sites import Site
from skillgen.model import Edit, ReplaceText

PAGES = (
    "docs/training/hierarchical-context-parallel.md",
    "docs/training/hybrid-context-parallel.md",
    "docs/fern/versions/nightly/pages/training/hierarchical-context-parallel.mdx",
)
SKILLS = (
    "skills/nemo-mbridge-perf-hierarchical-context-parallel/SKILL.md",
    "skills/perf-techniques/hybrid-context-parallel/SKILL.md",
)


class Passage(NamedTuple):
    """Lines of a page, `...` for those between, and what says it right."""

    part: str
    old: str
    name: str  # of the section in templates/hierarchical_cp/docs.md.j2


PASSAGES = (
    Passage("groups", "## Stable Bridge Limitation\n...\n  groups", "paths"),
    Passage("checks", "- Transformer Engine version support matters for `a2a+p2p`", "constraints"),
    Passage("recipe", "## Recommendation Level", "verify"),
    Passage("groups", "cfg.dist.use_decentralized_pg = False", "either-path"),
    Passage("groups", "    hcp=None,", "snippet"),
)
CLAIMS = {  # how a line of the published skill begins, whatever its number in a list
    "`TransformerConfig.__post_init__` enforces": ("checks", "validation"),
    "**Bridge HCP is MPU-only today**": ("groups", "both-paths"),
    "**No checked-in Bridge recipe**": ("recipe", "recipe-there"),
    "**Silent broken training": ("checks", "silent"),
    "**Verify in logs**": ("recipe", "logs"),
    "- Logs show `HIERARCHICAL_CONTEXT_PARALLEL_GROUPS`": ("recipe", "success-groups"),
    "- Training completes at least one step": ("recipe", "success-parity"),
    "- If you only see `CONTEXT_PARALLEL_GROUP`": ("recipe", "success-off"),
}


def corrections(place: Site, consumer: str) -> list[Edit]:
    """The corrections that belong to a part, for the passages that the target has."""
    from skillgen.render import sections

    edits: list[Edit] = []
    for path in (*PAGES, *SKILLS):
        text = place.read(path)
        if not text:
            continue
        parts = sections("hierarchical_cp/docs.md.j2", consumer=consumer)
        code = {name: new.strip("\n") for name, new in parts.items()}
        found = [passage for passage in PASSAGES if passage.part == place.part and _has(text, passage.old)]
        edits += [ReplaceText(path=path, old=passage.old, new=code[passage.name]) for passage in found]
        if path in SKILLS:
            for line in text.splitlines():
                edits += _claim(place.part, path, line, code)
    return edits


def _has(text: str, old: str) -> bool:
    lines = [line.rstrip() for line in text.splitlines()]
    return all(lines.count(line) == 1 for line in old.split("\n") if line != "...")


def _claim(part: str, path: str, line: str, code: dict[str, str]) -> list[Edit]:
    number, _, rest = line.partition(". ")
    number, rest = (f"{number}. ", rest) if number.isdigit() else ("", line)
    known = next((known for begin, known in CLAIMS.items() if rest.startswith(begin)), None)
    return [ReplaceText(path=path, old=line, new=number + code[known[1]])] if known and known[0] == part else []
