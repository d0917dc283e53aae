"""Verdicts on miniature targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from skillgen.engine.scan import scan
from skillgen.kernel.model import Row
from skillgen.techniques.vision_dp_over_cp import sites as vision_sites
from tests.miniature import Tree, tree

bridge_rows = partial(scan, technique=vision_sites.TECHNIQUE)

__all__ = ["tree"]
Verdict = Callable[[Mapping[str, str | bytes]], Row]


@pytest.fixture
def verdict(tree: Tree) -> Verdict:
    """The only row of a miniature target."""

    def classify(files: Mapping[str, str | bytes]) -> Row:
        rows = bridge_rows(tree(files))
        assert len(rows) == 1, [(row.family, row.outcome.value, row.reason) for row in rows]
        return rows[0]

    return classify
