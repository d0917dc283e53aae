"""What a step costs: saved activations, patches that the tower sees, collectives and their bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from skillgen.evals.kernel.families import Family

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "send", "recv", "isend", "irecv", "batch_isend_irecv",
)  # fmt: skip


@dataclass
class Traffic:
    """Collectives of one phase: their names and the bytes of their tensors, as (first argument, second argument)."""

    calls: list[str] = field(default_factory=list)
    bytes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def largest(self) -> int:
        """Bytes of the largest tensor that any of the collectives handled, over all calls added up."""
        return sum(max(pair) for pair in self.bytes)

    def side(self, index: int) -> int:
        """Sum over the calls of argument `index`: 0 is what arrives, 1 is what leaves."""
        return sum(pair[index] for pair in self.bytes)


@contextmanager
def collectives() -> Iterator[Traffic]:
    """Record every collective that is called through torch.distributed; calls within calls count once."""
    traffic, originals, depth = Traffic(), {}, 0

    def recorder(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth == 0:
                sizes = [_bytes(arg) for arg in [*args, *kwargs.values()] if isinstance(arg, Tensor | list | tuple)]
                traffic.calls.append(name)
                first, second = [*sizes, 0, 0][:2]
                traffic.bytes.append((first, second))
            depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                depth -= 1

        return record

    for name in filter(partial(hasattr, dist), COLLECTIVES):
        originals[name] = getattr(dist, name)
        setattr(dist, name, recorder(name, originals[name]))
    try:
        yield traffic
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    return sum(_bytes(item) for item in value if isinstance(item, Tensor))


@contextmanager
def saved_activations(model: nn.Module) -> Iterator[Callable[[], int]]:
    """Bytes that autograd keeps for backward, each storage once, parameters not counted."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept.setdefault(storage.data_ptr(), tensor.detach())  # holding it keeps the address from being reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@contextmanager
def patches_seen(family: Family, model: nn.Module) -> Iterator[list[int]]:
    """Patches of each call of the tower."""
    seen: list[int] = []

    def count(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(family.patches(args, kwargs))

    handle = family.tower(model).register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def now(device: torch.device) -> float:
    """Seconds, with the device's queue drained."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
