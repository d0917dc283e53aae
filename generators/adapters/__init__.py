"""What is known of each model family, one module per family, in one folder per product."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

from skillgen.adapters.base import Adapter, FrameAdapter


@cache
def adapters(product: str) -> tuple[Adapter, ...]:
    """The adapters of Megatron-Bridge; no other product has adapters of this kind."""
    return tuple(adapter for adapter in _found(product) if isinstance(adapter, Adapter))


@cache
def frame_adapters(product: str) -> tuple[FrameAdapter, ...]:
    """The adapters of Automodel; no other product has adapters of this kind."""
    return tuple(adapter for adapter in _found(product) if isinstance(adapter, FrameAdapter))


def _found(product: str) -> Iterator[object]:
    """Every adapter in the product's package; a module that starts with `_` is a helper."""
    package = f"{__name__}.{product.removeprefix('megatron-')}"
    spec = find_spec(package)
    for name in sorted(found.name for found in iter_modules(spec.submodule_search_locations)) if spec else ():
        if name[0] != "_":
            yield import_module(f"{package}.{name}").ADAPTER
