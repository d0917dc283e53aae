"""Run a2a+p2p attention, all-to-all inside and a ring outside, on both process-group paths, or refuse to start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillgen.kernel.model import FamilyPlan, Row

if TYPE_CHECKING:
    from skillgen.kernel.source import Source


def rows(source: Source) -> list[Row]:
    """The verdict on every part of the cure that belongs into this product."""
    from skillgen.techniques.hierarchical_cp import sites

    return sites.rows(source)


def plan(source: Source, family: str, options: Mapping[str, Any]) -> FamilyPlan:
    """The edits of one part; the caller has checked that the part is plannable."""
    from skillgen.techniques.hierarchical_cp import parts

    return parts.plan(source, family, options.get("consumer"))
