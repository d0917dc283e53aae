"""Count where the host reads a tensor's value: on a GPU it waits there until that value has been computed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

# Tensor methods that copy values to Python without an operator that a dispatch mode would see.
METHODS = ("tolist", "numpy", "cpu")
# item(), bool(), int() and float() come down to the first; the rest give results whose size depends on values.
OPERATORS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::repeat_interleave.Tensor")


class HostReads(TorchDispatchMode):
    """Reads by phase: "before" the tower, within it, and "after" it, up to where the features are complete.

    Reads of the agreement are "aside": on a GPU its exchange has a stream of its own, where no encoder kernel is
    waited for. They are told by the module that makes them, since on a CPU there are no streams.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.reads: Counter[str] = Counter()

    def note(self) -> None:
        """Count one read in the present phase."""
        frame, aside = sys._getframe(1), False
        while frame is not None and not aside:
            aside = frame.f_globals.get("__name__", "").endswith(".vision_sharding.agree")
            frame = frame.f_back  # type: ignore[assignment]
        self.reads["aside" if aside else self.phase] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() in OPERATORS:
            self.note()
        return func(*args, **(kwargs or {}))

    @contextmanager
    def watching(self, tower: nn.Module) -> Iterator[None]:
        """Count while the block runs."""

        def phase(name: str) -> Callable[..., None]:
            def enter(*_: Any) -> None:
                self.phase = name

            return enter

        originals = {name: getattr(Tensor, name) for name in METHODS}
        handles = [tower.register_forward_pre_hook(phase("within")), tower.register_forward_hook(phase("after"))]
        for name, original in originals.items():
            setattr(Tensor, name, self._noting(original))
        try:
            with self:
                yield
        finally:
            for name, original in originals.items():
                setattr(Tensor, name, original)
            for handle in handles:
                handle.remove()

    def encoding(self, encode: Callable[..., Any]) -> Callable[..., Any]:
        """`encode`, which may be sharded, as what "before" and "after" refer to."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.phase = "before"
            try:
                return encode(*args, **kwargs)
            finally:
                self.phase = "elsewhere"

        return watched

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.note()
            return original(*args, **kwargs)

        return noted
