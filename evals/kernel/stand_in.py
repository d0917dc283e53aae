"""A stand-in for Transformer Engine's attention: keeps what it is given, and computes with it what TE would."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from skillgen.evals.kernel.attention import Groups, full, hierarchical

VERSION = "2.18.0"


class DotProductAttention(nn.Module):
    """Takes [s, b, h, d]; gives [s, b, h * d]. Of the arguments only those on context parallelism count."""

    whole = False  # a switch for the arm without sharding: the sequence is all there, whatever the groups say

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.given = kwargs
        self.groups: Groups | None = None
        self.set_context_parallel_group(
            kwargs.get("cp_group"),
            kwargs.get("cp_global_ranks"),
            kwargs.get("cp_stream"),
            kwargs.get("cp_comm_type", "p2p"),
        )

    def set_context_parallel_group(
        self, cp_group: Any, cp_global_ranks: Any, cp_stream: Any, cp_comm_type: str
    ) -> None:
        """Keep the groups, as TE does, without a look at them."""
        self.cp_group, self.cp_global_ranks, self.cp_comm_type = cp_group, cp_global_ranks, cp_comm_type

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """No group is no context parallelism, silently: so TE reads it."""
        if DotProductAttention.whole:
            return full(query, key, value).flatten(2)
        self.groups = levels_of(self.cp_group, self.cp_comm_type)
        return hierarchical(query, key, value, self.groups).flatten(2)


def levels_of(cp_group: Any, cp_comm_type: str) -> Groups:
    """The groups of each level that an attention module with these arguments works on."""
    if cp_group is None:
        return Groups()
    if cp_comm_type == "a2a+p2p":
        if not isinstance(cp_group, list) or len(cp_group) != 2:
            raise AssertionError("a2a+p2p wants a list of two groups")
        inner, outer = cp_group
        return Groups(inner if inner.size() > 1 else None, outer if outer.size() > 1 else None)
    assert isinstance(cp_group, dist.ProcessGroup)
    return Groups(inner=cp_group) if cp_comm_type == "a2a" else Groups(outer=cp_group)
