"""Training: two arms from the same weights on the same data go the same way."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.arms import local_loss, summed, to_device
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Batch, Family, Item, Layout

STEPS, RATE = 20, 0.05


def cases(context: Context, family: Family) -> Iterator[Case]:
    """One case per CP size."""
    for cp in context.cp_sizes():
        yield Case("training", f"CP {cp}, {STEPS} steps of SGD", lambda cp=cp: training(context, family, cp))  # type: ignore[misc]


def training(context: Context, family: Family, cp: int) -> Result:
    """Loss of every step and the weights after the last."""
    layout = context.layout(cp)
    items = [Item(2, 3), Item(4, 2), Item(3, 3), *([Item(2, 2, 3)] if family.video else [Item(1, 4)])]
    seeds = [SEED + 2 * context.replica(layout) + turn for turn in range(2)]
    batches = [to_device(family.batch(items, seed), context.device) for seed in seeds]
    losses, weights = [], []
    for flag in (False, True):
        model = context.model(family, layout, flag=flag)
        losses.append(_train(family, model, batches, layout))
        weights.append([parameter.detach() for _, parameter in family.vision(model)])
    replicated, sharded = losses
    limit = tolerances.after(STEPS, torch.float32)
    start = [parameter.detach() for _, parameter in family.vision(context.model(family, layout, flag=False))]
    moved, drift = _norm(weights[0], start), _norm(weights[1], weights[0])
    return Result(
        checks={
            "loss, largest relative difference": (
                max(abs(a - b) / abs(b) for a, b in zip(sharded, replicated, strict=True)),
                limit,
            ),
            "encoder weights, difference relative to their way": (drift / moved, limit),
            "last loss relative to the first": (replicated[-1] / replicated[0], 0.98),
        },
        numbers={"loss, replicated": replicated, "loss, sharded": sharded},
    )


def _train(family: Family, model: nn.Module, batches: list[Batch], layout: Layout) -> list[float]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=RATE)
    losses = []
    for turn in range(STEPS):
        optimizer.zero_grad()
        batch = batches[turn % len(batches)]
        loss = local_loss(family, model, dict(batch.inputs), batch, layout)
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total, group=layout.cp)
        losses.append(float(total))
        gradients = summed([p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters], layout)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return losses


def _norm(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    return sum(float((a - b).pow(2).sum()) for a, b in zip(ours, theirs, strict=True)) ** 0.5
