"""Hierarchical causal attention of our own: all-to-all inside, ring with online softmax outside, zigzag layout.

Plain autograd in any precision; in fp64 it is the reference that the cases judge by. Shapes: s sequence (local unless
said otherwise), b batch, h heads, g KV heads, d head size; [s, b, h, d] in and out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from skillgen.evals.kernel import tables


@dataclass
class Traffic:
    """What one layer's attention sent from this rank, and the score entries that it computed."""

    all_to_all: int = 0
    exchanges: int = 0
    inner_bytes: int = 0
    outer_bytes: int = 0
    score_entries: int = 0


@dataclass
class Groups:
    """The two levels as an attention layer has them; None is a level that is off."""

    inner: dist.ProcessGroup | None = None
    outer: dist.ProcessGroup | None = None
    reorder: bool = True
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def a2a(self) -> int:
        return self.inner.size() if self.inner else 1

    @property
    def ring(self) -> int:
        return self.outer.size() if self.outer else 1


def hierarchical(q: Tensor, k: Tensor, v: Tensor, groups: Groups) -> Tensor:
    """Attention of [s, b, h, d] to [s, b, g, d], of which this rank holds one zigzag shard; [s, b, h, d]."""
    q, k, v = (_gather_sequence(x, groups) for x in (q, k, v))
    return _gather_heads(_ring_attention(q, k, v, groups), groups)


def full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same attention of the whole sequence on one rank, in one softmax."""
    where = torch.arange(q.shape[0], device=q.device)
    scores = _scores(q, k).masked_fill(where[None, :] > where[:, None], -torch.inf)
    return _weighted(scores.softmax(-1), v)


def _gather_sequence(x: Tensor, groups: Groups) -> Tensor:
    """[s, b, h, d] of all heads to [A * s, b, h / A, d], chunks in the order of their positions."""
    size = groups.a2a
    if size == 1:
        return x
    s, b, h, d = x.shape
    sent = x.reshape(s, b, size, h // size, d).permute(2, 0, 1, 3, 4)
    got = _AllToAll.apply(sent.contiguous(), groups)
    order = tables.ascending(size) if groups.reorder else range(2 * size)
    return _pick_chunks(got.reshape(size * s, b, h // size, d), order)


def _gather_heads(x: Tensor, groups: Groups) -> Tensor:
    """The way back: [A * s, b, h / A, d] to [s, b, h, d]."""
    size = groups.a2a
    if size == 1:
        return x
    order = tables.inverse(tables.ascending(size)) if groups.reorder else range(2 * size)
    rows, b, h, d = x.shape
    sent = _pick_chunks(x, order).reshape(size, rows // size, b, h, d)
    got = _AllToAll.apply(sent.contiguous(), groups)
    return got.permute(1, 2, 0, 3, 4).reshape(rows // size, b, size * h, d)


def _pick_chunks(x: Tensor, order: Sequence[int]) -> Tensor:
    chunks = x.chunk(len(order))
    return torch.cat([chunks[i] for i in order])


def _ring_attention(q: Tensor, k: Tensor, v: Tensor, groups: Groups) -> Tensor:
    """Attention on zigzag shards of the ring: partial softmaxes, merged as the other ranks' keys and values pass."""
    size, chunk = groups.ring, q.shape[0] // 2
    index = dist.get_rank(groups.outer) if groups.outer else 0
    own = torch.tensor(tables.positions(index, size, chunk), device=q.device)
    pair = torch.stack([k, v])
    best = total = merged = None
    for step in range(size):
        if step:
            pair = _Exchange.apply(pair, groups)
        theirs = torch.tensor(tables.positions((index - step) % size, size, chunk), device=q.device)
        hidden = theirs[None, :] > own[:, None]
        groups.traffic.score_entries += int((~hidden).sum()) * q.shape[2]
        scores = _scores(q, pair[0]).masked_fill(hidden, -torch.inf)
        # the largest score is a constant shift of the softmax: no gradient goes through it
        peak = scores.detach().amax(-1, keepdim=True)
        if best is not None:
            peak = torch.maximum(peak, best)
        weights = (scores - peak).exp()
        mass, partial = weights.sum(-1, keepdim=True), _weighted(weights, pair[1])
        if best is not None and total is not None and merged is not None:
            shrink = (best - peak).exp()
            mass = mass + total * shrink
            partial = partial + merged * _rows(shrink)
        best, total, merged = peak, mass, partial
    assert total is not None and merged is not None
    return merged / _rows(total)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """[b, g, h / g, s, t] scaled products of [s, b, h, d] and [t, b, g, d]."""
    grouped = q.unflatten(2, (k.shape[2], -1))
    return torch.einsum("sbgrd,tbgd->bgrst", grouped, k) / q.shape[-1] ** 0.5


def _weighted(weights: Tensor, v: Tensor) -> Tensor:
    """[b, g, h / g, s, t] weights of [t, b, g, d] values: [s, b, h, d]."""
    return torch.einsum("bgrst,tbgd->sbgrd", weights, v).flatten(2, 3)


def _rows(x: Tensor) -> Tensor:
    """A number per row of the scores, [b, g, h / g, s, 1], as one per row of the output: [s, b, h, 1]."""
    return x.permute(3, 0, 1, 2, 4).flatten(2, 3)


class _AllToAll(torch.autograd.Function):
    """Forward and backward alike: part i of [A, ...] goes to rank i of the inner group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: Groups) -> Tensor:
        ctx.groups = groups
        groups.traffic.all_to_all += 1
        groups.traffic.inner_bytes += x.nbytes // groups.a2a * (groups.a2a - 1)
        return _all_to_all(x, groups)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _all_to_all(grad, ctx.groups), None


def _all_to_all(x: Tensor, groups: Groups) -> Tensor:
    sent = x.contiguous()
    # not empty_like: of an expanded or transposed gradient it would have that one's strides
    got = torch.empty(sent.shape, dtype=sent.dtype, device=sent.device)
    dist.all_to_all_single(got, sent, group=groups.inner)
    return got


class _Exchange(torch.autograd.Function):
    """Forward: to the next rank of the ring, from the one before. Backward: the gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: Groups) -> Tensor:
        ctx.groups = groups
        groups.traffic.exchanges += 1
        groups.traffic.outer_bytes += x.nbytes
        return _pass_on(x, groups, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _pass_on(grad, ctx.groups, -1), None


def _pass_on(x: Tensor, groups: Groups, direction: int) -> Tensor:
    ranks = dist.get_process_group_ranks(groups.outer)
    index = dist.get_rank(groups.outer)
    sent = x.contiguous()
    got = torch.empty(sent.shape, dtype=sent.dtype, device=sent.device)
    to, source = ranks[(index + direction) % len(ranks)], ranks[(index - direction) % len(ranks)]
    work = [
        dist.P2POp(dist.isend, sent, to, groups.outer),
        dist.P2POp(dist.irecv, got, source, groups.outer),
    ]
    for request in dist.batch_isend_irecv(work):
        request.wait()
    return got
