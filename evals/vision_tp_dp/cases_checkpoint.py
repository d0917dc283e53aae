"""Checkpoint and norm: each weight is saved once and counted once, whatever the degrees; another mode can load it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.vision_tp_dp.arms import reference, step
from skillgen.evals.vision_tp_dp.batches import batch, images
from skillgen.evals.vision_tp_dp.cases_parity import finalizer
from skillgen.evals.vision_tp_dp.families import Qwen3VL
from skillgen.evals.vision_tp_dp.models import VISION, Models
from skillgen.evals.vision_tp_dp.replacing import everywhere
from skillgen.evals.vision_tp_dp.worlds import Mode, layouts, modes


def cases(context: Context, family: Qwen3VL) -> Iterator[Case]:
    """Integrity and the norm at every mode; one checkpoint that goes from mode to mode."""
    for layout in layouts(context.world):
        found = [*modes(layout)]
        for mode in found:
            yield Case("checkpoint", f"{mode}: every shard once", partial(integrity, context, family, mode))
            if mode.vision_tp != layout.tp:
                name = f"{mode}: without replica ids it is not (control)"
                yield Case("checkpoint", name, partial(integrity, context, family, mode, control=True))
            yield Case("checkpoint", f"{mode}: gradient norm", partial(norm, context, family, mode))
        if len(found) > 1 and layout.dp == 1:
            for saved, loaded in zip(found, found[1:] + found[:1], strict=True):
                run = partial(exchanged, context, family, saved, loaded)
                yield Case("checkpoint", f"from {saved} to {loaded.name}", run)


def integrity(context: Context, family: Qwen3VL, mode: Mode, *, control: bool = False) -> Result:
    """megatron-core's own validation of who saves what; in the control every replica calls itself the main one."""
    from megatron.core.dist_checkpointing.core import CheckpointingException
    from megatron.core.dist_checkpointing.validation import determine_global_metadata, validate_sharding_integrity

    original = context.harness.parts().offset_replica_ids
    with everywhere(original, _leave) if control else nullcontext():
        state = sharded(Models(context, family).get(mode))
    _, metadata = determine_global_metadata(state)
    said = ""
    try:
        validate_sharding_integrity(metadata)  # on rank 0 for all
    except CheckpointingException as error:
        said = str(error) or "refused"
    failed = context.any(bool(said))
    what = "the fault was not seen" if control else "megatron-core's validation refused it"
    return Result({what: (float(failed != control), 0)}, {"message": said[:300]})


def sharded(model: Any) -> Any:
    """What a distributed checkpoint of the model holds; extra states, empty without Transformer Engine, left out."""
    state = model.sharded_state_dict()
    return {name: entry for name, entry in state.items() if not name.endswith("_extra_state")}


def _leave(*_: Any, **__: Any) -> None:
    """Replica ids stay as megatron-core gives them."""


def norm(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    """megatron-core's choice of gradients for the norm, squared and summed as it does; the tower's alone as well."""
    models, finalize = Models(context, family), finalizer(context)
    batches = [batch(images(5), SEED + replica, context.device) for replica in range(mode.layout.dp)]
    whole = reference(models, mode, batches, finalize)[0].grads
    step(models, mode, batches[context.rank // mode.layout.world], finalize)
    model = models.built(mode)
    found = {}
    for part, prefix in (("tower", VISION), ("model", "")):
        total = _counted({n: p for n, p in model.named_parameters() if n.startswith(prefix)}, model.pg_collection)
        want = sum(float(grad.square().sum()) for name, grad in whole.items() if name.startswith(prefix))
        found[f"norm of the {part}, relative difference"] = (
            abs(total**0.5 / want**0.5 - 1),
            tolerances.of(torch.float64, torch.float32),
        )
    return Result(found)


def _counted(parameters: dict[str, Tensor], collection: Any) -> float:
    from megatron.core.optimizer.optimizer import MegatronOptimizer

    options = SimpleNamespace(
        use_precision_aware_optimizer_no_fp8_or_ds_fp8=False, use_precision_aware_optimizer=False
    )
    optimizer: Any = SimpleNamespace(config=options, tp_group=collection.tp)
    chosen = MegatronOptimizer._filter_grads_for_norm(optimizer, list(parameters.values()))
    total = torch.stack([grad.square().sum() for grad in chosen] or [torch.zeros((), dtype=torch.float64)]).sum()
    dist.all_reduce(total, group=collection.mp)
    return float(total)


def exchanged(context: Context, family: Qwen3VL, saved: Mode, loaded: Mode) -> Result:
    """What the main replicas of one mode would save, put together, is what each rank of the other expects to load.

    Nothing is written: megatron-core's writer starts processes of its own and wants a GPU.
    """
    models = Models(context, family)
    mine = [
        (entry.key, entry.global_shape, _place(entry), entry.data.detach())
        for entry in sharded(models.get(saved)).values()
        if not any(entry.replica_id)
    ]
    parts: list[Any] = [None] * context.world
    dist.all_gather_object(parts, mine)
    whole: dict[str, Tensor] = {}
    for key, shape, place, data in (piece for part in parts for piece in part):
        whole.setdefault(key, torch.full(shape, torch.nan, dtype=data.dtype))[place] = data.cpu()
    expected = sharded(models.get(loaded)).values()
    wrong = [e.key for e in expected if not torch.equal(whole[e.key][_place(e)], e.data.detach().cpu())]
    return Result({f"weights differ: {wrong[:3]}": (float(len(wrong)), 0)})


def _place(entry: Any) -> tuple[Any, ...]:
    """Where a shard stands in the whole tensor, whose first axes may number the layers."""
    ahead = entry.prepend_axis_num
    offsets = entry.global_offset[ahead:]
    sizes = zip(offsets, entry.data.shape, strict=True)
    return (*entry.global_offset[:ahead], *(slice(offset, offset + size) for offset, size in sizes))
