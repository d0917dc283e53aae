"""Gather feature rows over a process group in their original order, with a backward that sums into their owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .plan import Plan


class Layout(NamedTuple):
    """Where each rank's rows stand in the gathered features."""

    piece_rows: tuple[tuple[int, ...], ...]  # per rank: rows of each of its segments, in the order it encodes them
    order: tuple[int, ...]  # original order of the pieces, as indices into their rank-major list

    @property
    def rank_rows(self) -> list[int]:
        """Rows that each rank owns."""
        return [sum(pieces) for pieces in self.piece_rows]


def row_layout(plan: Plan, rows: Sequence[int]) -> Layout:
    """Lay out a plan's rows; `rows[i]` is the number of feature rows of one unit of run i."""
    pieces = [segment for share in plan.shares for segment in share]
    return Layout(
        piece_rows=tuple(tuple(rows[s.run] * s.count for s in share) for share in plan.shares),
        order=tuple(sorted(range(len(pieces)), key=lambda i: (pieces[i].run, pieces[i].start))),
    )


def gather_rows(
    features: Sequence[Tensor], layout: Layout, group: dist.ProcessGroup, *, trainable: bool
) -> list[Tensor]:
    """All-gather this rank's rows of every feature level in one collective.

    Args:
        features: one tensor per level, shape [local_rows, width of the level], one dtype and device.
        layout: the same on every rank of the group.
        group: every member calls this the same number of times, in the same order.
        trainable: whether backward takes part; the same on every rank, whatever its local tensors require.

    Returns:
        One tensor per level, shape [total rows, width], in the original order of the units.
    """
    anchor = torch.zeros((), device=features[0].device, requires_grad=trainable)
    return list(_GatherRows.apply(anchor, layout, group, *features))


class _GatherRows(torch.autograd.Function):
    """Forward: all-gather of rows, restored to original order. Backward: reduce-scatter (SUM) of rows to their owners.

    Both directions are one all_to_all_single: it takes uneven shares without padding on NCCL and on gloo, for any
    subgroup, and the sum over ranks is ours, in fp32 for half precision.
    """

    @staticmethod
    def forward(ctx, anchor: Tensor, layout: Layout, group: dist.ProcessGroup, *features: Tensor):  # noqa: ANN205
        ctx.layout, ctx.group = layout, group
        ctx.widths = [level.shape[1] for level in features]
        ctx.save_for_backward(anchor)  # lets activation recompute stop at one place on every rank
        elements = [rows * sum(ctx.widths) for rows in layout.rank_rows]
        local = torch.cat([level.detach().reshape(-1) for level in features])
        received = local.new_empty(sum(elements))
        dist.all_to_all_single(
            received,
            local.repeat(group.size()),
            output_split_sizes=elements,
            input_split_sizes=[local.numel()] * group.size(),
            group=group,
        )
        pieces = _pieces_by_level(received.split(elements), layout, ctx.widths)
        return tuple(torch.cat(restore_order(level, layout.order)) for level in pieces)

    @staticmethod
    def backward(ctx, *grads: Tensor):  # noqa: ANN205
        layout, widths, group = ctx.layout, ctx.widths, ctx.group
        (anchor,) = ctx.saved_tensors
        by_level = [to_rank_major(grad, layout) for grad in grads]
        outgoing, first = [], 0
        for pieces in layout.piece_rows:
            outgoing += [piece.reshape(-1) for level in by_level for piece in level[first : first + len(pieces)]]
            first += len(pieces)
        elements = [rows * sum(widths) for rows in layout.rank_rows]
        mine = elements[group.rank()]
        received = grads[0].new_empty(mine * group.size())
        dist.all_to_all_single(
            received,
            torch.cat(outgoing),
            output_split_sizes=[mine] * group.size(),
            input_split_sizes=elements,
            group=group,
        )
        total = sum_over_ranks(received.view(group.size(), mine), group.rank())
        rows = layout.rank_rows[group.rank()]
        local = [part.view(rows, width) for part, width in zip(total.split([rows * w for w in widths]), widths)]
        return (torch.zeros_like(anchor), None, None, *local)


def sum_over_ranks(contributions: Tensor, rank: int) -> Tensor:
    """Sum [ranks, n] gradients of this rank's rows: every rank's sequence shard saw only some of their uses."""
    half = contributions.dtype in (torch.float16, torch.bfloat16)
    return contributions.sum(dim=0, dtype=torch.float32 if half else None).to(contributions.dtype)


def restore_order(pieces: Sequence[Tensor], order: Sequence[int]) -> list[Tensor]:
    """Rank-major pieces, in the original order of their units."""
    return [pieces[i] for i in order]


def to_rank_major(grad: Tensor, layout: Layout) -> list[Tensor]:
    """Cut a gradient [total rows, width] in original order into rank-major pieces."""
    rows = [n for pieces in layout.piece_rows for n in pieces]
    pieces = [grad] * len(rows)
    for place, piece in zip(layout.order, grad.split([rows[i] for i in layout.order])):
        pieces[place] = piece
    return pieces


def _pieces_by_level(chunks: Sequence[Tensor], layout: Layout, widths: Sequence[int]) -> list[list[Tensor]]:
    """Cut each rank's flat chunk into levels, and each level into its rank's pieces."""
    levels: list[list[Tensor]] = [[] for _ in widths]
    for chunk, pieces in zip(chunks, layout.piece_rows):
        parts = chunk.split([sum(pieces) * width for width in widths])
        for level, part, width in zip(levels, parts, widths):
            level += part.view(-1, width).split(list(pieces)) if pieces else []
    return levels
