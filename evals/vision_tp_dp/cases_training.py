"""Training: megatron-core's DDP and the target's own setup of gradient finalization go the way of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Item
from skillgen.evals.vision_tp_dp.batches import Batch, batch, images
from skillgen.evals.vision_tp_dp.families import Qwen3VL
from skillgen.evals.vision_tp_dp.models import VISION, Models, alone, shard_of
from skillgen.evals.vision_tp_dp.worlds import Mode, layouts, modes

STEPS, RATE = 4, 0.2
# Microbatches of a step, in turn; with one image most ranks have a placeholder only.
TURNS = (([Item(2, 3), Item(4, 2), Item(3, 3)], images(5)), (images(1), [Item(2, 2, 3), Item(1, 4)]))


def cases(context: Context, family: Qwen3VL) -> Iterator[Case]:
    """Every mode, with sequence parallelism where there is TP."""
    for layout in layouts(context.world):
        for mode in modes(layout):
            sp = replace(mode, sequence_parallel=layout.tp > 1)
            yield Case("training", f"{sp}, {STEPS} steps of SGD", partial(training, context, family, sp))


def training(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    """Loss of every step, and the tower's weights after the last."""
    models = Models(context, family)
    replicas = range(mode.layout.dp)
    own = context.rank // mode.layout.world
    whole = models.fresh(alone(mode))
    start = {name: p.detach().clone() for name, p in whole.named_parameters()}
    batches = [[_microbatches(context, turn, replica) for replica in replicas] for turn in range(len(TURNS))]
    wanted = [_alone(whole, batches[number % len(TURNS)]) for number in range(STEPS)]
    model = models.fresh(mode)
    ddp = wrapped(context, model)
    losses = [_sharded(ddp, batches[number % len(TURNS)][own]) for number in range(STEPS)]
    drift = way = 0.0
    after = dict(whole.named_parameters())
    for name, p in model.named_parameters():
        if name.startswith(VISION):
            drift += float((p - shard_of(model, name, after[name], p)).detach().square().sum())
            way += float((after[name] - start[name]).detach().square().sum())
    limit = tolerances.after(STEPS, torch.float64, torch.float32)
    apart = max(abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True))
    return Result(
        checks={
            "loss, largest relative difference": (apart, limit),
            "tower's weights, difference relative to their way": ((drift / way) ** 0.5, limit),
            "loss of the same microbatches, last relative to first": (wanted[-len(TURNS)] / wanted[0], 0.98),
        },
        numbers={"loss, replicated": wanted, "loss, sharded": losses},
    )


def wrapped(context: Context, model: Any) -> Any:
    """The model in megatron-core's DDP with overlapped reduction; its configuration as the target's setup sets it."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig

    options = DistributedDataParallelConfig(overlap_grad_reduce=True, bucket_size=5000)
    ddp = DistributedDataParallel(model.config, options, model)
    optimizer = SimpleNamespace(scale_loss=None)
    context.harness.setup()._update_model_config_funcs(
        [ddp], model.config, options, optimizer, pg_collection=model.pg_collection
    )
    return ddp


def _microbatches(context: Context, turn: int, replica: int) -> list[Batch]:
    seed = SEED + 10 * turn + 100 * replica
    return [batch(items, seed + number, context.device) for number, items in enumerate(TURNS[turn])]


def _alone(model: Any, replicas: list[list[Batch]]) -> float:
    """A step on one rank, over every replica's microbatches: the mean loss of a token."""
    model.zero_grad(set_to_none=True)
    total = torch.zeros((), dtype=torch.float64)
    tokens = 0.0
    for own in (one for microbatches in replicas for one in microbatches):
        loss, count = _loss(model, own)
        loss.backward()
        total, tokens = total + loss.detach().cpu(), tokens + float(count)
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p -= RATE * p.grad / tokens
    return float(total) / tokens


def _sharded(ddp: Any, microbatches: list[Batch]) -> float:
    """A step of this rank; the mean loss of a token over all replicas."""
    model = ddp.module
    ddp.zero_grad_buffer()
    total = torch.zeros(2, dtype=torch.float64, device=microbatches[0].mask.device)
    for number, own in enumerate(microbatches, 1):
        with ddp.no_sync() if number < len(microbatches) else nullcontext():
            loss, count = _loss(ddp, own)
            loss.backward()
        total += torch.stack([loss.detach(), count])
    tokens = total[1].clone()
    model.config.finalize_model_grads_func([ddp], tokens)
    with torch.no_grad():
        for p in model.parameters():
            p -= RATE * p.main_grad
    dist.all_reduce(total, group=model.pg_collection.dp_cp)
    return float(total[0] / total[1])


def _loss(model: Any, own: Batch) -> tuple[Tensor, Tensor]:
    """Summed over this rank's tokens, and how many they are."""
    output = model(**own.inputs, labels=own.labels, loss_mask=own.mask)
    losses, mask = output if isinstance(output, tuple) else (output, own.mask)
    return (losses * mask).sum(), mask.sum()
