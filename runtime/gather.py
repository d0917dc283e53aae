"""Gather feature rows over a process group in their original order, with a backward that sums into their owners."""

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
    rank_rows = [sum(rows[segment.run] * segment.count for segment in share) for share in plan.shares]
    order = sorted(range(len(pieces)), key=pieces.__getitem__)
    return Layout(rank_rows, [rows[segment.run] * segment.count for segment in pieces], order)


def gather_rows(features: list[Tensor], layout: Layout, group: dist.ProcessGroup, *, trainable: bool) -> list[Tensor]:
    """All-gather this rank's rows of every feature level in one collective, into the original order of the units.

    Each level [local rows, width] becomes [total rows, width]. Layout and `trainable`, which says whether backward
    takes part, are the same on every rank, whatever its local tensors require; all ranks make the same calls.
    """
    anchor = torch.zeros((), device=features[0].device, requires_grad=trainable)
    return list(_GatherRows.apply(anchor, layout, group, *features))


class _GatherRows(torch.autograd.Function):
    """Forward: all-gather of rows, restored to original order. Backward: reduce-scatter (SUM) of rows to their owners.

    Each is one all_to_all_single, which takes uneven shares unpadded on NCCL and gloo; the sum over ranks is ours.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, layout: Layout, group: Any, *features: Tensor) -> Any:
        ctx.layout, ctx.group, ctx.widths = layout, group, [level.shape[1] for level in features]
        ctx.save_for_backward(anchor)  # activation recompute then goes on past the encoder, to one place on every rank
        local = torch.cat(features, dim=1)
        gathered = exchange(local.repeat(group.size(), 1), [len(local)] * group.size(), layout.rank_rows, group)
        rows = torch.cat(restore_order(gathered.split(layout.piece_rows), layout.order))
        levels = rows.split(ctx.widths, dim=1) if len(features) > 1 else (rows,)  # no view where one level will do
        return tuple(level.to(given.dtype).contiguous() for level, given in zip(levels, features))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        layout, group, (anchor,) = ctx.layout, ctx.group, ctx.saved_tensors
        mine = layout.rank_rows[group.rank()]
        rows = torch.cat(to_rank_major(torch.cat(grads, dim=1), layout))
        rows = exchange(rows, layout.rank_rows, [mine] * group.size(), group)
        total = sum_over_ranks(rows.view(group.size(), mine, rows.shape[1]))
        return (torch.zeros_like(anchor), None, None, *total.split(ctx.widths, dim=1))


def exchange(rows: Tensor, send: list[int], receive: list[int], group: dist.ProcessGroup) -> Tensor:
    """Send the next `send[i]` rows to rank i of the group, and return what came, `receive[i]` rows from rank i."""
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
