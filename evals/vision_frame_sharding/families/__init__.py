"""Tiny real towers of Automodel's families; one module per family, found by name."""

from __future__ import annotations

import importlib
import pkgutil

from skillgen.evals.vision_frame_sharding.towers import Tower


def names() -> list[str]:
    """Families that have an eval."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def load(name: str) -> type[Tower]:
    """The family class of `name`."""
    module = importlib.import_module(f"{__name__}.{name}")
    return module.FAMILY


__all__ = ["Tower", "load", "names"]
