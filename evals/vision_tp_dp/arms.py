"""One step of a model: what its language model was given, the loss, and gradients as an optimizer would see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from skillgen.evals.kernel.arms import apart, apart_by_name
from skillgen.evals.kernel.families import zigzag
from skillgen.evals.vision_tp_dp.batches import Batch
from skillgen.evals.vision_tp_dp.models import VISION, Models, PlainDDP, alone, shard_of
from skillgen.evals.vision_tp_dp.worlds import Mode

Finalize = Callable[..., Any]
Hook = Callable[[Any], None]


@dataclass
class Step:
    """What one step gave on this rank."""

    loss: float
    seen: list[Tensor]  # [sequences, positions, width] of the main features and of each deepstack level
    grads: dict[str, Tensor] = field(default_factory=dict)
    pixels: list[Tensor] = field(default_factory=list)


def loss_of(model: Any, inputs: dict[str, Any], batch: Batch) -> Tensor:
    """This CP rank's part of the loss; the parts add up to the mean over unmasked tokens."""
    output = model(**inputs, labels=batch.labels, loss_mask=batch.mask)
    losses, mask = output if isinstance(output, tuple) else (output, batch.mask)
    return (losses * mask).sum() / batch.mask.sum()


def step(
    models: Models,
    mode: Mode,
    batch: Batch,
    finalize: Finalize | None,
    *,
    hook: Hook | None = None,
    pixels: bool = False,
) -> Step:
    """Forward and, with `finalize`, backward of a mode's model on this rank's microbatch; `hook` prepares it."""
    model = models.get(mode)
    if hook is not None:
        hook(model)
    collection = model.pg_collection
    model.config.finalize_model_grads_func = finalize
    inputs, leaves = batch.leaves(pixels and finalize is not None)
    seen: list[Tensor] = []
    handle = model.language_model.register_forward_pre_hook(
        lambda _, args, given: seen.extend(features(given, models.family.levels)), with_kwargs=True
    )
    try:
        with torch.set_grad_enabled(finalize is not None):
            loss = loss_of(model, inputs, batch)
    finally:
        handle.remove()
    total = loss.detach().clone()
    if collection.cp.size() > 1:
        dist.all_reduce(total, group=collection.cp)
    if finalize is None:
        return Step(float(total), seen)
    if loss.requires_grad:
        loss.backward()
    finalize([PlainDDP(model, collection.dp_cp)], None, pg_collection=collection)
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    grads = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in trainable}
    return Step(float(total), seen, grads, [_pixel_gradient(model, leaf) for leaf in leaves if pixels])


def features(given: dict[str, Any], levels: int) -> list[Tensor]:
    """Dense [sequences, positions, width]: embeddings with features in place, then each deepstack level."""
    main = given["decoder_input"].detach().transpose(0, 1)
    dense = [torch.zeros_like(main) for _ in range(levels)]
    for level, rows in zip(dense, given["deepstack_visual_embeds"] or [], strict=False):
        level[given["visual_pos_masks"]] = rows.detach()
    return [main, *dense]


def reference(
    models: Models, mode: Mode, batches: Sequence[Batch], finalize: Finalize | None, **options: Any
) -> list[Step]:
    """The same model on one rank: a step per replica's microbatch, the gradients of all of them together."""
    steps = [step(models, alone(mode), batch, finalize and _nothing, **options) for batch in batches]
    total = {name: torch.stack([s.grads[name] for s in steps]).sum(0) for name in steps[0].grads}
    for one in steps:
        one.grads = total
    return steps


def distances(models: Models, mode: Mode, got: Step, whole: Step) -> dict[str, float]:
    """How far a rank's step is from its part of the single-rank one."""
    model = models.get(mode)
    own = local_positions(mode, model.pg_collection, whole.seen[0].shape[1]).to(whole.seen[0].device)
    found = {
        "features": apart(got.seen, [level[:, own] for level in whole.seen]),
        "loss": abs(got.loss - whole.loss) / abs(whole.loss),
    }
    if got.grads:
        want = {name: shard_of(model, name, whole.grads[name], grad) for name, grad in got.grads.items()}
        for part, names in (
            ("vision gradients", [name for name in want if name.startswith(VISION)]),
            ("language gradients", [name for name in want if not name.startswith(VISION)]),
        ):
            found[part] = apart_by_name({n: got.grads[n] for n in names}, {n: want[n] for n in names})
    if got.pixels:
        found["pixel gradients"] = apart(got.pixels, whole.pixels)
    return found


def local_positions(mode: Mode, collection: Any, length: int) -> Tensor:
    """Positions that this rank's part of the language model holds: a zigzag shard over CP, cut over TP."""
    layout = mode.layout
    own = torch.arange(length) if layout.cp == 1 else zigzag(length, layout.cp, collection.cp.rank())
    return own.chunk(layout.tp)[collection.tp.rank()] if mode.sequence_parallel else own


def _nothing(*_: Any, **__: Any) -> None:
    """A rank by itself has nothing to reduce."""


def _pixel_gradient(model: Any, leaf: Tensor) -> Tensor:
    """The gradient of the pixels, of which each rank of a column (without columns: of CP) has its part."""
    gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    groups = getattr(model, "vision_groups", None)
    group = groups.column if groups is not None else model.pg_collection.cp
    if group is not None and group.size() > 1:
        dist.all_reduce(gradient, group=group)
    return gradient
