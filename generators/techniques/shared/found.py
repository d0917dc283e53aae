"""Find the adapters of a technique: one module per model family, in the folder `families` of the technique."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


@cache
def adapters(families: str) -> tuple[Any, ...]:
    """The `ADAPTER` of every module of a package, by file name; a module that starts with `_` is a helper."""
    names = sorted(found.name for found in iter_modules(import_module(families).__path__))
    return tuple(import_module(f"{families}.{name}").ADAPTER for name in names if name[0] != "_")
