"""Ranks of one text TP group with equal vision weights: equal from the start, one gradient, counted and saved once."""

import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


BUCKET = 2**26  # numbers summed at a time


def broadcast_replicas(module: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Give every replica the first one's parameters and buffers: each text TP rank draws its own random numbers."""
    if group is None:
        return
    first = dist.get_process_group_ranks(group)[0]
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_meta:  # without values yet
            continue
        # Some parameters are made on the CPU and moved later, which NCCL cannot send.
        sent = tensor.detach().to("cuda" if dist.get_backend(group) == "nccl" else tensor.device).contiguous()
        dist.broadcast(sent, src=first, group=group)
        tensor.data.copy_(sent)


def mark_replicas(module: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Let megatron-core count the gradient norm on the first replica only."""
    if group is not None and group.rank() > 0:
        for parameter in module.parameters():
            parameter.shared = True  # type: ignore[attr-defined]  # its own word for it


def sum_replica_gradients(module: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Sum the parameters' `main_grad`, or `grad`, over the replicas, each of which has encoded other images."""
    if group is None:
        return
    buckets: dict[tuple[torch.dtype, int], list[Tensor]] = defaultdict(list)
    numbers = 0
    for parameter in module.parameters():
        grad = getattr(parameter, "main_grad", None)
        grad = parameter.grad if grad is None else grad
        if parameter.requires_grad and grad is not None:
            buckets[grad.dtype, numbers // BUCKET].append(grad)
            numbers += grad.numel()
    for (dtype, _), grads in buckets.items():
        flat = torch.cat([grad.flatten() for grad in grads])
        flat = flat.float() if dtype in (torch.float16, torch.bfloat16) else flat
        dist.all_reduce(flat, group=group)
        for grad, total in zip(grads, flat.split([grad.numel() for grad in grads])):
            grad.copy_(total.view_as(grad))


def with_replica_sum(finalize: Callable[..., Any]) -> Callable[..., Any]:
    """Sum over the replicas after megatron-core's `finalize_model_grads`, once per model with `vision_groups`."""
    if _sums(finalize):
        return finalize
    return functools.partial(finalize_and_sum, finalize)  # a saved configuration names what it holds, no closure


def finalize_and_sum(finalize: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    """Call `finalize`, then sum: see `with_replica_sum`."""
    result = finalize(model, *args, **kwargs)
    for chunk in model if isinstance(model, (list, tuple)) else [model]:
        for module in chunk.modules():
            groups = vars(module).get("vision_groups")  # not a wrapper's view of it
            encoder = getattr(module, "vision_model", None)  # on the first pipeline stage only
            if groups is not None and encoder is not None:
                sum_replica_gradients(encoder, groups.replicas)
    return result


def _sums(finalize: Callable[..., Any] | None) -> bool:
    return getattr(finalize, "func", None) is finalize_and_sum


def require_replica_sum(
    module: nn.Module, group: dist.ProcessGroup | None, finalize: Callable[..., Any] | None
) -> None:
    """ValueError if `finalize` would leave each replica the gradient of its images alone; None may be no training."""
    trains = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters())
    if group is not None and trains and not _sums(finalize) and (finalize is not None or module.training):
        told = "vision_tp_dp: finalize_model_grads_func must be wrapped by with_replica_sum, and called by the loop"
        raise ValueError(f"{told}, got {finalize}")


def offset_replica_ids(sharded_state_dict: Any, group: dist.ProcessGroup | None, tp_size: int) -> None:
    """Number the replicas behind the first one's (pp, tp, dp), in place, so that one of them is saved."""
    if group is None:
        return
    if isinstance(sharded_state_dict, dict):
        sharded_state_dict = list(sharded_state_dict.values())
    if isinstance(sharded_state_dict, (list, tuple)):
        for entry in sharded_state_dict:
            offset_replica_ids(entry, group, tp_size)
    elif hasattr(sharded_state_dict, "replica_id"):
        pp, tp, dp = sharded_state_dict.replica_id
        sharded_state_dict.replica_id = (pp, tp + tp_size * group.rank(), dp)
