"""What collectives a block of code calls, and how many bytes each sends."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode


class Collectives(TorchDispatchMode):
    """Records every collective as (name, bytes sent to other ranks)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.calls.append((func._opname, sent_bytes(func._opname, args)))
        return func(*args, **(kwargs or {}))

    def take(self) -> list[tuple[str, int]]:
        """What was recorded since the last call."""
        calls, self.calls = self.calls, []
        return calls


def sent_bytes(name: str, args: Any) -> int:
    """What this rank sends to others in an all-to-all; the size of its own tensor in an all-gather."""
    if name == "alltoall_base_":
        payload, group, splits = args[1], dist.ProcessGroup.unbox(args[2]), list(args[4])
        return (sum(splits) - splits[group.rank()]) * payload.shape[1] * payload.element_size()
    if name == "allgather_":
        return args[1][0].numel() * args[1][0].element_size()
    return 0
