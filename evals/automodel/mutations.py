"""Faults that are put into a patched Automodel on purpose: each must make a case fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import mutations
from ..context import Context

FAULTS: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "frame-order": mutations.FAULTS["order"],
    "sum-dropped": mutations.FAULTS["no-reduce"],
}


def names() -> list[str]:
    """Every mutation, by the name that `--mutate` takes."""
    return [*FAULTS]


def apply(name: str, context: Context) -> None:
    """Break the patched code in this process."""
    mutations.put(context.harness.runtime(), *FAULTS[name])
