"""Models of a run: on megatron-core's groups, with the weights of one full model, whatever the degrees."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from skillgen.evals.kernel.context import Context
from skillgen.evals.vision_tp_dp import process_groups
from skillgen.evals.vision_tp_dp.families import Qwen3VL
from skillgen.evals.vision_tp_dp.worlds import ALONE, Layout, Mode

VISION = "vision_model."


class Models:
    """Models by mode, each built once; entering a layout makes its groups those of megatron-core."""

    def __init__(self, context: Context, family: Qwen3VL) -> None:
        self.context, self.family = context, family

    def enter(self, layout: Layout) -> Any:
        """Make megatron-core see a layout's groups; the collection."""
        return process_groups.of(self.context).enter(layout)

    def get(self, mode: Mode) -> Any:
        """The model of a mode with the run's weights and no gradients; its layout is entered."""
        kept = self.context.kept
        if mode not in kept:
            kept[mode] = self.fresh(mode)
        self.enter(mode.layout)
        model = kept[mode]
        model.zero_grad(set_to_none=True)
        model.requires_grad_(True)
        return model

    def built(self, mode: Mode) -> Any:
        """The model of a mode as its last step left it."""
        return self.context.kept[mode]

    def fresh(self, mode: Mode) -> Any:
        """A model of its own, for a case that changes its weights; its layout is entered."""
        full = self.full(mode.large)
        model = self.family.build(mode, self.enter(mode.layout)).to(self.context.device).train()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(shard_of(model, name, full[name], parameter))
        return model

    def full(self, large: bool) -> dict[str, Tensor]:
        """The run's weights by name, unsharded, the same on every rank."""
        kept = self.context.kept
        if ("weights", large) not in kept:
            model = self.family.build(Mode(ALONE, large=large), self.enter(ALONE))
            kept["weights", large] = {
                name: _weight(name, p).to(self.context.device) for name, p in model.named_parameters()
            }
        found: dict[str, Tensor] = kept["weights", large]
        return found


def alone(mode: Mode) -> Mode:
    """The mode's model on one rank, without sharding of any kind."""
    return Mode(ALONE, recompute=mode.recompute, large=mode.large)


def shard_of(model: Any, name: str, full: Tensor, local: Tensor) -> Tensor:
    """A rank's part of an unsharded tensor: by its place in the TP group of the tower, or of the language model."""
    cut = [dim for dim in range(full.ndim) if full.shape[dim] != local.shape[dim]]
    if not cut:
        return full
    part = model.vision_model if name.startswith(VISION) else model
    group = part.pg_collection.tp
    return full.chunk(group.size(), cut[0])[group.rank()]


def _weight(name: str, parameter: Tensor) -> Tensor:
    """Large enough that a wrong row shows."""
    noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    if parameter.ndim == 1:
        return (0.1 * noise + (0.0 if name.endswith("bias") else 1.0)).double()
    return (noise * parameter[0].numel() ** -0.5).double()


class PlainDDP(nn.Module):
    """In the place of megatron-core's DistributedDataParallel: gradients are summed over DP x CP, without buckets."""

    def __init__(self, model: nn.Module, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.module, self.group = model, group
        self.ddp_config = SimpleNamespace(use_megatron_fsdp=False)

    def finish_grad_sync(self, force_all_reduce: bool | None = False) -> None:
        """Sum; a parameter without gradient, as on a rank without images, counts as zero."""
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad, group=self.group)
