"""Put something in the place of a function of the target, wherever the target has imported it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from skillgen.evals.kernel.harness import BRIDGE


@contextmanager
def everywhere(original: Any, value: Any) -> Iterator[None]:
    """While entered, every module of the target that has `original` under some name has `value` there."""
    found = replace(original, value)
    try:
        yield
    finally:
        for names, name in found:
            names[name] = original


def replace(original: Any, value: Any) -> list[tuple[dict[str, Any], str]]:
    """The same for good; where it was put."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(BRIDGE)]
    places = [(vars(module), name) for module in modules for name, held in [*vars(module).items()] if held is original]
    for names, name in places:
        names[name] = value
    return places
