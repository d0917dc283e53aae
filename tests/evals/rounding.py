"""A processor whose matrix products round by the number of rows, whatever the machine at hand does."""

from __future__ import annotations

import zlib
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.convolution)


def rounding() -> AbstractContextManager[Any]:
    """Within it each element of a product is a neighbour of what it was: of the two, by the shapes and its place."""
    return _ByShape()


class _ByShape(TorchDispatchMode):
    """Equal products round alike; the product of a share rounds its rows otherwise than that of the batch."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket not in PRODUCTS or not out.is_floating_point():
            return out
        shapes = repr([tuple(value.shape) for value in args if isinstance(value, Tensor)])
        generator = torch.Generator().manual_seed(zlib.crc32(shapes.encode()))
        up = torch.randint(2, out.shape, generator=generator, dtype=torch.bool)
        return torch.nextafter(out, torch.where(up, torch.inf, -torch.inf).to(out.dtype))
