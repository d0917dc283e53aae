"""Verdicts on miniature targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from skillgen.kernel.model import Row
from skillgen.techniques.vision_dp_over_cp import sites as vision_sites
from tests.miniature import Tree, tree

__all__ = ["tree"]
Verdict = Callable[[Mapping[str, str | bytes]], Row]


@pytest.fixture
def verdict(tree: Tree) -> Verdict:
    """The only row of a miniature target."""

    def classify(files: Mapping[str, str | bytes]) -> Row:
        rows = vision_sites.classify(tree(files))
        assert len(rows) == 1, [(row.family, row.outcome.value, row.reason) for row in rows]
        return rows[0]

    return classify
