"""Passages of a target's pages that a patch makes false: corrected where they stand, left where they do not."""

from __future__ import annotations


def stands_in(text: str, old: str) -> bool:
    """Whether each line of a passage, `...` aside, stands in the text once."""
    lines = [line.rstrip() for line in text.splitlines()]
    return all(lines.count(line) == 1 for line in old.split("\n") if line != "...")
