"""Faults that are put into the patched code on purpose: each must make a case fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from skillgen.evals.kernel import mutations as base
from skillgen.evals.kernel.context import Context
from skillgen.evals.vision_tp_dp.replacing import replace
from skillgen.evals.vision_tp_dp.worlds import Mode


def names() -> list[str]:
    """Every mutation, by the name that `--mutate` takes."""
    return list(FAULTS)


def apply(name: str, context: Context) -> None:
    """Break the target in this process."""
    FAULTS[name](context)
    for built in [key for key in context.kept if isinstance(key, Mode)]:
        del context.kept[built]


def _part(name: str, fault: Callable[[Any], Any]) -> Callable[[Context], None]:
    """Put a fault around a function of the runtime's subpackage."""

    def put(context: Context) -> None:
        original = getattr(context.harness.parts(), name)
        replace(original, fault(original))

    return put


def _nothing(_: Any) -> Callable[..., None]:
    return lambda *args, **kwargs: None


def _columns_rows(context: Context) -> None:
    """Vision TP groups go down, DP columns along: every size is right where the two are equal."""
    parts = context.harness.parts()
    replace(parts.tp_groups, lambda world, tp: [list(world[i :: len(world) // tp]) for i in range(len(world) // tp)])
    replace(parts.dp_columns, lambda world, tp, dp: [list(world[i : i + dp]) for i in range(0, len(world), dp)])


def _sum_not_slice(context: Context) -> None:
    """Backward sums over all ranks of a column, the equal gradients of its replicas too."""

    def fault(gather: Callable[..., Any]) -> Callable[..., Any]:
        return lambda features, layout, group, replicas, **options: gather(features, layout, group, 1, **options)

    base.put(context.harness.runtime(), ("gather_replicated_rows",), fault)


def _unpack_before_gather(context: Context) -> None:
    """Each rank brings its own blocks' rows into the order of the images; what comes together stays as it comes."""
    blocks = context.harness.parts().GridBlocks
    take, unpack_indices = blocks.take, blocks.unpack_indices
    own: list[Tensor] = []

    def taken(form: Any, call: Any, share: Any, placeholders: Any) -> Any:
        rows = form.block_patches // form.merge_size**2
        first, count = share[0].start * rows, share[0].count * rows
        indices = unpack_indices(form, call) - first
        valid = indices[(indices >= 0) & (indices < count)]
        rest = torch.tensor([i for i in range(count) if i not in valid.tolist()], dtype=valid.dtype)
        own[:] = [torch.cat([valid, rest])]
        return take(form, call, share, placeholders)

    def ordered(own_rows: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
        def reordered(*args: Any) -> list[Tensor]:
            order = own.pop() if own else slice(None)
            return [level[order] for level in own_rows(*args)]

        return reordered

    blocks.take = taken
    blocks.unpack_indices = lambda form, call: torch.arange(len(unpack_indices(form, call)))
    base.put(context.harness.runtime(), ("own_rows",), ordered)


def _deepstack_partial(context: Context) -> None:
    """Under sequence parallelism each rank keeps the gradient of its own part of the deepstack levels."""
    from megatron.core import tensor_parallel

    tensor_parallel.copy_to_tensor_model_parallel_region = lambda level, group=None: level


def _nan_padding(context: Context) -> None:
    """The free space of a block is attended by the image before it."""
    blocks, tower = context.harness.parts().GridBlocks, context.harness.prepare()[0].Qwen3VLVisionModel
    take, build = blocks.take, tower.build_packed_seq_params
    free: list[int] = []

    def taken(form: Any, call: Any, share: Any, placeholders: Any) -> Any:
        result = take(form, call, share, placeholders)
        pieces = result[form.pixels].split([int(size) for size in result[form.grid].prod(-1)])
        free[:] = [number for number, piece in enumerate(pieces) if number and not piece.any()]
        return result

    def built(self: Any, grid_thw: Tensor) -> Any:
        params = build(self, grid_thw)
        bounds = params.cu_seqlens_q
        joined = bounds[[number for number in range(len(bounds)) if number not in free]]
        params.cu_seqlens_q = params.cu_seqlens_kv = joined
        return params

    blocks.take, tower.build_packed_seq_params = taken, built


def _text_conversion(context: Context) -> None:
    """Weights of the tower are converted on the language model's TP group."""
    bridge = context.harness.bridge()
    module = context.harness.load("models.conversion.model_bridge")
    assert bridge is not None
    replace(module._set_vision_process_groups, lambda *args: None)


def _tp_default(context: Context) -> None:
    """A vision TP degree that is not set is 1, whatever the DP degree."""
    kind = context.harness.parts().VisionParallelConfig
    resolve = kind.resolve_tp_dp

    @wraps(resolve)
    def resolved(self: Any, world_size: int) -> Any:
        self.tp_size = self.tp_size or 1
        return resolve(self, world_size)

    kind.resolve_tp_dp = resolved


def _no_agree(context: Context) -> None:
    """Ranks go to the payload without asking each other."""
    base.put(context.harness.runtime(), *base.FAULTS["no-agree"])


FAULTS: dict[str, Callable[[Context], None]] = {
    "columns-rows": _columns_rows,
    "sum-not-slice": _sum_not_slice,
    "no-replica-sum": _part("sum_replica_gradients", _nothing),
    "unpack-before-gather": _unpack_before_gather,
    "no-broadcast": _part("broadcast_replicas", _nothing),
    "deepstack-partial": _deepstack_partial,
    "no-replica-ids": _part("offset_replica_ids", _nothing),
    "norm-twice": _part("mark_replicas", _nothing),
    "nan-padding": _nan_padding,
    "no-agree": _no_agree,
    "text-conversion": _text_conversion,
    "tp-default": _tp_default,
}
