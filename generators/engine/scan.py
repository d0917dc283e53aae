"""The verdict of every technique on every site of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillgen.engine import registry
from skillgen.kernel.collector import paused
from skillgen.kernel.model import Row

if TYPE_CHECKING:
    from skillgen.kernel.target import Target


@paused()
def scan(target: Target, *, technique: str | None = None) -> list[Row]:
    """The rows of one technique, or of all in the order of their names."""
    names = [technique] if technique else registry.names()
    return [row for name in names for row in registry.load(name).rows(target)]
