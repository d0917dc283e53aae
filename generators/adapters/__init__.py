"""What is known of each model family, one module per family, in one folder per product."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

from skillgen.adapters.base import Adapter


@cache
def adapters(product: str) -> tuple[Adapter, ...]:
    """The adapters of a product, found by walking its package; a module that starts with `_` is a helper."""
    package = f"{__name__}.{product.removeprefix('megatron-')}"
    spec = find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return ()
    names = sorted(found.name for found in iter_modules(spec.submodule_search_locations) if found.name[0] != "_")
    return tuple(import_module(f"{package}.{name}").ADAPTER for name in names)
