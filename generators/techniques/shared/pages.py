"""Pages of a target: a section in each that describes a model, and passages that a patch makes false."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skillgen.kernel.model import AddText

if TYPE_CHECKING:
    from pathlib import Path

    from skillgen.kernel.target import Target

FROZEN, CURRENT = "fern/versions", "nightly"  # documentation of released versions, and the one that is none


def guides(target: Target, *stems: str) -> list[Path]:
    """The pages of these names in every documentation tree; those of released versions are left alone."""
    found = []
    for root in (target.root / folder for folder in target.about.docs):
        pages = sorted(page for stem in filter(None, stems) for page in root.rglob(f"{stem}.md*"))
        frozen = root / FROZEN
        found += [page for page in pages if frozen not in page.parents or frozen / CURRENT in page.parents]
    return found


def add_section(target: Target, pages: Iterable[Path], text: str, *, before: str) -> list[AddText]:
    """The text in each page, before its heading `before` where it has one."""
    found = []
    for page in pages:
        lines = page.read_text(encoding="utf-8").splitlines()
        found.append(AddText(path=target.relative(page), text=text, before=before if before in lines else None))
    return found


def stands_in(text: str, old: str) -> bool:
    """Whether each line of a passage, `...` aside, stands in the text once."""
    lines = [line.rstrip() for line in text.splitlines()]
    return all(lines.count(line) == 1 for line in old.split("\n") if line != "...")
