"""Corrections of a target's pages on hierarchical context parallelism: what our patch changes, and what was wrong."""

from __future__ import annotations

from typing import NamedTuple

from skillgen.kernel.model import Edit, ReplaceText
from skillgen.techniques.hierarchical_cp.sites import Site
from skillgen.techniques.shared.pages import stands_in

PAGES = (
    "docs/training/hierarchical-context-parallel.md",
    "docs/training/hybrid-context-parallel.md",
    "docs/fern/versions/nightly/pages/training/hierarchical-context-parallel.mdx",
)
SKILLS = (
    "skills/nemo-mbridge-perf-hierarchical-context-parallel/SKILL.md",
    "skills/perf-techniques/hybrid-context-parallel/SKILL.md",
)
CARDS = tuple(path.replace("SKILL.md", "card.yaml") for path in SKILLS)


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
    Passage(
        "groups",
        "when HCP sizes are provided via `create_hierarchical_groups`. Bridge currently\n"
        "gets those groups through the MPU-backed `ProcessGroupCollection`.",
        "made",
    ),
    Passage("groups", "summary: >\n...\n  remains flat and does not create hierarchical CP groups.", "card-summary"),
    Passage("groups", "  - Bridge HCP is MPU-path only today.", "card-paths"),
    Passage("groups", "  - The decentralized-PG path initializes flat CP groups and leaves HCP unset.", "card-limit"),
    Passage("recipe", "  - No checked-in Bridge recipe sets cp_comm_type=a2a+p2p.", "card-recipe"),
    Passage("recipe", "  - No checked-in Bridge functional test runs an end-to-end HCP training step.", "card-test"),
    Passage(
        "recipe",
        "  - Add a positive Bridge functional test that completes at least one HCP training step.",
        "card-run",
    ),
    Passage(
        "groups",
        "  - Add Bridge-side validation that rejects HCP-looking config on use_decentralized_pg=true.",
        "card-decentralized",
    ),
    Passage("recipe", "  - Add a checked-in Bridge recipe or example for a2a+p2p.", "card-measure"),
)
CLAIMS = {  # how a line of the published skill begins, whatever its number in a list
    "`TransformerConfig.__post_init__` enforces": ("checks", "validation"),
    "**Bridge HCP is MPU-only today**": ("groups", "both-paths"),
    "**No checked-in Bridge recipe**": ("recipe", "recipe-there"),
    "**Silent broken training": ("checks", "silent"),
    "**Verify in logs**": ("recipe", "logs"),
    "No dedicated Bridge end-to-end test exists yet": ("recipe", "end-to-end"),
    "`follow_up_validation`). Use the existing unit tests": ("recipe", "end-to-end-more"),
    "- Logs show `HIERARCHICAL_CONTEXT_PARALLEL_GROUPS`": ("recipe", "success-groups"),
    "- Training completes at least one step": ("recipe", "success-parity"),
    "- If you only see `CONTEXT_PARALLEL_GROUP`": ("recipe", "success-off"),
}


def corrections(place: Site, consumer: str) -> list[Edit]:
    """The corrections that belong to a part, for the passages that the target has."""
    from skillgen.kernel.render import sections

    edits: list[Edit] = []
    for path in (*PAGES, *SKILLS, *CARDS):
        text = place.read(path)
        if not text:
            continue
        parts = sections("hierarchical_cp/docs.md.j2", consumer=consumer)
        code = {name: new.strip("\n") for name, new in parts.items()}
        found = [passage for passage in PASSAGES if passage.part == place.part and stands_in(text, passage.old)]
        edits += [ReplaceText(path=path, old=passage.old, new=code[passage.name]) for passage in found]
        if path in SKILLS:
            for line in text.splitlines():
                edits += _claim(place.part, path, line, code)
    return edits


def _claim(part: str, path: str, line: str, code: dict[str, str]) -> list[Edit]:
    number, _, rest = line.partition(". ")
    number, rest = (f"{number}. ", rest) if number.isdigit() else ("", line)
    known = next((known for begin, known in CLAIMS.items() if rest.startswith(begin)), None)
    return [ReplaceText(path=path, old=line, new=number + code[known[1]])] if known and known[0] == part else []
