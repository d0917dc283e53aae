"""Gather rows over ranks some of which hold equal gradients of them."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..gather import Layout, _GatherRows, exchange, sum_over_ranks, to_rank_major


def gather_replicated_rows(
    features: list[Tensor], layout: Layout, group: dist.ProcessGroup, replicas: int, *, trainable: bool
) -> list[Tensor]:
    """As `gather_rows`, for a group in which `replicas` ranks in a row hold equal gradients of the features.

    Of these, each sends in backward to the owners at its own place among them, so that one of the equal is summed.
    """
    anchor = torch.zeros((), device=features[0].device, requires_grad=trainable)
    return list(_GatherReplicatedRows.apply(anchor, layout, group, replicas, *features))


class _GatherReplicatedRows(torch.autograd.Function):
    """Forward: as `_GatherRows`. Backward: reduce-scatter (SUM) over the ranks at one place among their replicas."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, layout: Layout, group: Any, replicas: int, *features: Tensor) -> Any:
        ctx.replicas = replicas
        return _GatherRows.forward(ctx, anchor, layout, group, *features)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        layout, group, step, (anchor,) = ctx.layout, ctx.group, ctx.replicas, ctx.saved_tensors
        rank, mine = group.rank(), layout.rank_rows[group.rank()]
        peers = [other % step == rank % step for other in range(group.size())]
        rows = torch.cat(to_rank_major(torch.cat(grads, dim=1), layout))
        rows = torch.cat(rows.split(layout.rank_rows)[rank % step :: step])
        if sum(peers) > 1:  # alone, it has what it needs
            send = [number * peer for number, peer in zip(layout.rank_rows, peers)]
            rows = exchange(rows, send, [mine * peer for peer in peers], group)
        total = sum_over_ranks(rows.view(sum(peers), mine, rows.shape[1]))
        return (torch.zeros_like(anchor), None, None, None, *total.split(ctx.widths, dim=1))
