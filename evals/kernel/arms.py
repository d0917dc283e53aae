"""Run one arm: the model's own forward, its loss, backward; and measure how far two arms are apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from skillgen.evals.kernel.families import Batch, Family, Layout, zigzag
from skillgen.evals.kernel.measure import Traffic, collectives


@dataclass
class Step:
    """What one forward and backward gave on this rank; gradients are summed over the CP group, in fp32."""

    loss: Tensor
    seen: list[Tensor]
    grads: dict[str, Tensor] = field(default_factory=dict)
    pixel_grads: list[Tensor] = field(default_factory=list)
    without_grad: int = 0  # trainable vision parameters that this rank left without gradient
    forward: Traffic = field(default_factory=Traffic)
    backward: Traffic = field(default_factory=Traffic)


def local_loss(family: Family, model: nn.Module, inputs: dict[str, Any], batch: Batch, layout: Layout) -> Tensor:
    """This CP rank's part of the loss; the parts add up to the mean over unmasked tokens."""
    labels, mask = batch.labels, batch.loss_mask
    shard = zigzag(labels.shape[1], layout.cp.size(), layout.cp.rank()).to(labels.device)
    output = model(**inputs, labels=labels if family.labels_sliced_by_model else labels[:, shard], loss_mask=mask)
    losses, local_mask = output if isinstance(output, tuple) else (output, mask[:, shard])
    return (losses * local_mask).sum() / mask.sum()


def step(
    family: Family,
    model: nn.Module,
    batch: Batch,
    layout: Layout,
    *,
    dtype: torch.dtype = torch.float32,
    recompute: bool = False,
    input_grads: bool = True,
) -> Step:
    """Forward and backward of one arm; `recompute` checkpoints the whole model, collectives included."""
    model.zero_grad(set_to_none=True)
    inputs, leaves = batch.leaves(dtype) if input_grads else (dict(batch.inputs), [])
    with collectives() as forward:
        if recompute:
            loss = checkpoint(lambda: local_loss(family, model, inputs, batch, layout), use_reentrant=False)
        else:
            loss = local_loss(family, model, inputs, batch, layout)
    seen = [tensor.detach().float() for tensor in model.language_model.seen]  # type: ignore[union-attr]
    if not torch.is_grad_enabled():
        return Step(loss.detach(), seen, forward=forward)
    with collectives() as backward:
        loss.backward()
    trainable = [(name, p) for name, p in family.vision(model) if p.requires_grad]
    grads = summed([p.grad if p.grad is not None else torch.zeros_like(p) for _, p in trainable], layout)
    total = loss.detach().clone()
    dist.all_reduce(total, group=layout.cp)
    return Step(
        loss=total,
        seen=seen,
        grads={name: grad for (name, _), grad in zip(trainable, grads, strict=True)},
        pixel_grads=summed(
            [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in leaves], layout
        ),
        without_grad=sum(p.grad is None for _, p in trainable),
        forward=forward,
        backward=backward,
    )


def summed(tensors: list[Tensor], layout: Layout) -> list[Tensor]:
    """The tensors' sum over the CP group, in fp32."""
    if not tensors:
        return []
    flat = torch.cat([tensor.float().flatten() for tensor in tensors])
    dist.all_reduce(flat, group=layout.cp)
    return [
        part.view_as(tensor) for part, tensor in zip(flat.split([t.numel() for t in tensors]), tensors, strict=True)
    ]


class InDouble(TorchFunctionMode):
    """While entered, code that casts to bf16 whatever it is given gets fp64: a reference for what it rounds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def finer(value: Any) -> Any:
            return torch.float64 if value is torch.bfloat16 else value

        return func(*map(finer, args), **{name: finer(value) for name, value in (kwargs or {}).items()})


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device; pixel sizes and grids too, as a data loader leaves them."""
    inputs = {name: value.to(device) for name, value in batch.inputs.items()}
    return Batch(
        inputs, batch.pixels, batch.labels.to(device), batch.loss_mask.to(device), batch.feature_rows, batch.calls
    )


def apart(got: list[Tensor], want: list[Tensor]) -> float:
    """Largest difference, relative to the largest value of all wanted tensors; shapes must agree."""
    scale = max((float(w.abs().max()) for w in want if w.numel()), default=0.0) or 1.0
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        if g.shape != w.shape:
            raise ValueError(f"shapes differ: {tuple(g.shape)} instead of {tuple(w.shape)}")
        if g.numel():
            difference = float((g - w).abs().max()) / scale
            worst = difference if not difference <= worst else worst  # NaN counts as worst
    return worst


def apart_by_name(got: dict[str, Tensor], want: dict[str, Tensor]) -> float:
    """Largest relative difference over parameters, each on its own scale (at least a thousandth of the largest)."""
    if got.keys() != want.keys():
        raise ValueError(f"parameters differ: {sorted(got.keys() ^ want.keys())}")
    largest = max((float(w.abs().max()) for w in want.values()), default=0.0) or 1.0
    worst = 0.0
    for name, w in want.items():
        scale = max(float(w.abs().max()), 1e-3 * largest)
        difference = float((got[name] - w).abs().max()) / scale
        worst = difference if not difference <= worst else worst
    return worst


def distances(got: Step, want: Step) -> dict[str, float]:
    """The three distances that parity is about, and the loss."""
    return {
        "features": apart(got.seen, want.seen),
        "parameter gradients": apart_by_name(got.grads, want.grads),
        "input gradients": apart(got.pixel_grads, want.pixel_grads),
        "loss": abs(float(got.loss) - float(want.loss)) / max(abs(float(want.loss)), 1e-6),
    }
