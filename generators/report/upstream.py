"""How a report tells of the target's own tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KIND = "upstream-tests"  # the kind of case that needs no ranks
EDITED, BROUGHT = "tests of the edited files", "tests that the patch brings"
FOLDER = "tests/unit_tests/"  # left out of names


def gain(told: Mapping[str, Any]) -> str:
    """The counts in a line, and what ran."""
    before, after = (told["numbers"][arm][0] for arm in ("before", "after"))
    counts = [f"{found.get('passed', 0):,} passed, {found.get('failed', 0)} failed" for found in (before, after)]
    theirs, ours = (_shown(told["numbers"].get(whose, [[]])[0]) for whose in (EDITED, BROUGHT))
    return (
        f"the target's own unit tests of the edited files ({theirs}): {counts[0]} without the patch; {counts[1]} with "
        f"it and the tests that it brings ({ours})"
    )


def _shown(paths: Sequence[str]) -> str:
    return ", ".join(path.removeprefix(FOLDER) for path in paths) or "none"
