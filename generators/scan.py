"""The verdict of every technique on every site of a target."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from skillgen import registry
from skillgen.model import Row

if TYPE_CHECKING:
    from skillgen.target import Target


def scan(target: Target, *, technique: str | None = None) -> list[Row]:
    """The rows of one technique, or of all in the order of their names."""
    names = [technique] if technique else registry.names()
    collecting = gc.isenabled()
    gc.disable()  # nothing becomes garbage while trees are built, and looking for it takes half of a scan
    try:
        return [row for name in names for row in registry.load(name).rows(target)]
    finally:
        if collecting:
            gc.enable()
