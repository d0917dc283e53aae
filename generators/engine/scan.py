"""The verdict of every technique on every site of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillgen.engine import registry
from skillgen.kernel.collector import paused
from skillgen.kernel.model import Row
from skillgen.kernel.source import Source

if TYPE_CHECKING:
    from skillgen.kernel.target import Target


@paused()
def scan(target: Target, *, technique: str | None = None) -> list[Row]:
    """The rows of one technique, or of all in the order of their names; the tree is read and parsed once."""
    source = Source(target)
    return [row for name in ([technique] if technique else registry.names()) for row in rows(source, name)]


def rows(source: Source, technique: str) -> list[Row]:
    """The verdict on every site of a target; none where the technique is not for its product."""
    wanted = source.target.product in registry.about(technique).PRODUCTS
    return registry.load(technique).rows(source) if wanted else []
