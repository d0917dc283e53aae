"""Tiny real models of a target's families; one module per family, found by name."""

from __future__ import annotations

import importlib
import pkgutil

from skillgen.evals.kernel.families import Batch, Family, Item


def names() -> list[str]:
    """Families that have an eval."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base")


def load(name: str) -> type[Family]:
    """The family class of `name`."""
    module = importlib.import_module(f"{__name__}.{name}")
    return module.FAMILY


__all__ = ["Batch", "Family", "Item", "load", "names"]
