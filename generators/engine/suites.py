"""The suite that proves a technique, known by the technique's name alone."""

from __future__ import annotations

import importlib
from typing import Any


def suite_of(technique: str) -> Any:
    """The suite module of a technique; importing it needs no torch."""
    return importlib.import_module(f"skillgen.evals.{technique.replace('-', '_')}.suite")
