"""Gather feature rows over a process group in their original order, with a backward that sums into their owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from .plan import Plan


class Layout(NamedTuple):
    """Where each rank's rows stand in the gathered features; a piece is a segment of a rank's share."""

    rank_rows: list[int]
    piece_rows: list[int]  # rank after rank
    order: list[int]  # the pieces in the original order of their units


def row_layout(plan: Plan, rows: Sequence[int]) -> Layout:
    """Lay out a plan's rows; `rows[i]` is the number of feature rows of one unit of run i."""
    pieces = [segment for share in plan.shares for segment in share]
    return Layout(
        rank_rows=[sum(rows[segment.run] * segment.count for segment in share) for share in plan.shares],
        piece_rows=[rows[segment.run] * segment.count for segment in pieces],
        order=sorted(range(len(pieces)), key=lambda i: pieces[i]),
    )


def gather_rows(
    features: list[Tensor], layout: Layout, group: dist.ProcessGroup, *, trainable: bool, replicas: int = 1
) -> list[Tensor]:
    """All-gather this rank's rows of every feature level in one collective, into the original order of the units.

    Each level [local rows, width] becomes [total rows, width]. Layout and `trainable`, which says whether backward
    takes part, are the same on every rank, whatever its local tensors require; all ranks make the same calls. Of
    `replicas` ranks in a row, which hold equal gradients of the features, each sends to owners at its own place.
    """
    anchor = torch.zeros((), device=features[0].device, requires_grad=trainable)
    return list(_GatherRows.apply(anchor, layout, group, replicas, *features))


class _GatherRows(torch.autograd.Function):
    """Forward: all-gather of rows, restored to original order. Backward: reduce-scatter (SUM) of rows to their owners.

    Each is one all_to_all_single, which takes uneven shares unpadded on NCCL and gloo; the sum over ranks is ours.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, layout: Layout, group: Any, replicas: int, *features: Tensor) -> Any:
        widths = [level.shape[1] for level in features]
        ctx.layout, ctx.group, ctx.replicas, ctx.widths = layout, group, replicas, widths
        ctx.save_for_backward(anchor)  # activation recompute then goes on past the encoder, to one place on every rank
        local = torch.cat(features, dim=1)
        gathered = _exchange(local.repeat(group.size(), 1), [len(local)] * group.size(), layout.rank_rows, group)
        rows = torch.cat(restore_order(gathered.split(layout.piece_rows), layout.order))
        levels = rows.split(widths, dim=1) if len(features) > 1 else (rows,)  # no view where one level will do
        return tuple(level.to(given.dtype).contiguous() for level, given in zip(levels, features))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        layout, group, step, (anchor,) = ctx.layout, ctx.group, ctx.replicas, ctx.saved_tensors
        rank, mine = group.rank(), layout.rank_rows[group.rank()]
        peers = [other % step == rank % step for other in range(group.size())]
        rows = torch.cat(to_rank_major(torch.cat(grads, dim=1), layout))
        rows = torch.cat(rows.split(layout.rank_rows)[rank % step :: step]) if step > 1 else rows
        if sum(peers) > 1:  # alone, it has what it needs
            send = [number * peer for number, peer in zip(layout.rank_rows, peers)]
            rows = _exchange(rows, send, [mine * peer for peer in peers], group)
        total = sum_over_ranks(rows.view(sum(peers), mine, rows.shape[1]))
        return (torch.zeros_like(anchor), None, None, None, *total.split(ctx.widths, dim=1))


def _exchange(rows: Tensor, send: list[int], receive: list[int], group: dist.ProcessGroup) -> Tensor:
    received = rows.new_empty(sum(receive), rows.shape[1])
    dist.all_to_all_single(received, rows, output_split_sizes=receive, input_split_sizes=send, group=group)
    return received


def sum_over_ranks(contributions: Tensor) -> Tensor:
    """Sum [ranks, rows, width] gradients of this rank's rows: each rank's sequence shard saw some of their uses."""
    half = contributions.dtype in (torch.float16, torch.bfloat16)
    return contributions.sum(dim=0, dtype=torch.float32 if half else None).to(contributions.dtype)


def restore_order(pieces: Sequence[Tensor], order: Sequence[int]) -> list[Tensor]:
    """Rank-major pieces, in the original order of their units."""
    return [pieces[i] for i in order]


def to_rank_major(grad: Tensor, layout: Layout) -> list[Tensor]:
    """Cut a gradient [total rows, width] in original order into rank-major pieces."""
    in_order = grad.split([layout.piece_rows[i] for i in layout.order])
    return [piece for _, piece in sorted(zip(layout.order, in_order), key=lambda pair: pair[0])]
