"""Parity: features and gradients at every mode are those of the same model on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Item
from skillgen.evals.kernel.harness import or_skip
from skillgen.evals.vision_tp_dp.arms import distances, reference, step
from skillgen.evals.vision_tp_dp.batches import batch, images
from skillgen.evals.vision_tp_dp.families import Qwen3VL
from skillgen.evals.vision_tp_dp.models import Models, alone
from skillgen.evals.vision_tp_dp.worlds import Mode, layouts, modes, off

VIDEO = (Item(2, 3, 3), Item(2, 2), Item(1, 4), Item(3, 2))  # three frames, then images of other sizes
FROZEN = "frozen tower"
FREEZE = {
    FROZEN: {"freeze_language_model": False, "freeze_vision_model": True, "freeze_vision_projection": True},
    "frozen layers, trainable mergers": {
        "freeze_language_model": False,
        "freeze_vision_model": True,
        "freeze_vision_projection": False,
    },
}


@dataclass(frozen=True)
class Scene:
    """What a step works on, and how."""

    items: tuple[Item, ...]
    sequences: int = 1
    packed: bool = False
    grad: bool = True
    pixels: bool = True  # whether the pixels require grad
    freeze: str = ""  # a key of FREEZE


def scenes(count: int, **options: Any) -> Scene:
    """Some images."""
    return Scene(tuple(images(count)), **options)


def cases(context: Context, family: Qwen3VL) -> Iterator[Case]:
    """Every mode that the ranks hold; what does not depend on the mode, at the one of a layout that shards most."""

    def case(mode: Mode, name: str, scene: Scene) -> Case:
        return Case("parity", f"{mode}: {name}", partial(parity, context, family, mode, scene))

    for layout in layouts(context.world):
        found = [*modes(layout)]
        for mode in found:
            sp = replace(mode, sequence_parallel=layout.tp > 1)
            for count in (0, 1, 17):
                yield case(sp, f"{count} image{'' if count == 1 else 's'}", scenes(count))
            yield case(sp, "a video and images", Scene(VIDEO))
            yield case(replace(sp, blocks=32), "17 images", scenes(17))
            if layout.tp > 1:
                yield case(mode, "a video and images", Scene(VIDEO))
        shared = [mode for mode in found if mode.vision_dp > 1]
        if not shared or layout.dp > 1:
            continue
        mode = replace(shared[-1], sequence_parallel=layout.tp > 1)
        yield case(mode, "fewer images than ranks", scenes(mode.vision_dp - 1))
        yield case(mode, "two sequences", scenes(5, sequences=2))
        yield case(replace(mode, recompute=True), "5 images", scenes(5))
        for name in FREEZE:
            yield case(mode, name, scenes(5, freeze=name, pixels=False))
        yield case(mode, f"{FROZEN}, pixel gradients", Scene(VIDEO, freeze=FROZEN))
        yield case(mode, "no_grad", Scene(VIDEO, grad=False))
        if layout.cp == 1:
            yield case(mode, "packed sequences", scenes(5, sequences=2, packed=True))
        blocks = replace(mode, blocks=32)
        yield Case("parity", f"{blocks}: NaN in the padding", partial(padding, context, family, blocks))
        yield Case("parity", f"{off(mode)}: vision gradients told", partial(released, context, family, off(mode)))


def require(context: Context, family: Qwen3VL) -> None:
    """Run the model with the switch off: Skip where a package that it wants is not here, else an error is its own."""
    mode = Mode(layouts(context.world)[0])
    own = batch(images(2), SEED, context.device)
    or_skip(lambda: step(Models(context, family), mode, own, None), context.harness.optional)


def parity(context: Context, family: Qwen3VL, mode: Mode, scene: Scene) -> Result:
    """A step of the mode against the same step on one rank, every replica of the data on its own microbatch."""
    models, finalize = Models(context, family), finalizer(context) if scene.grad else None
    shape: Any = {"sequences": scene.sequences, "packed": scene.packed}
    replicas = range(mode.layout.dp)
    batches = [batch(scene.items, SEED + replica, context.device, **shape) for replica in replicas]
    options: Any = {"pixels": scene.pixels, "hook": partial(_freeze, FREEZE[scene.freeze]) if scene.freeze else None}
    known = "reference", scene, alone(mode), len(replicas)
    if known not in context.kept:
        context.kept[known] = reference(models, mode, batches, finalize, **options)
    own = context.rank // mode.layout.world
    got = step(models, mode, batches[own], finalize, **options)
    found = distances(models, mode, got, context.kept[known][own])
    return Result(limited(found))


def limited(found: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Each distance with its limit: what comes after megatron-core's cross entropy has passed fp32."""
    parts = dict.fromkeys(found, torch.float32) | {"features": None}
    return {name: (value, tolerances.of(torch.float64, parts[name])) for name, value in found.items()}


def released(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    """With the switch off, what upstream makes of the tower's gradients is a number beside the rest, not a check.

    Under sequence parallelism each TP rank uses its part of the deepstack levels, and nothing sums their gradients.
    """
    result = parity(context, family, mode, scenes(5))
    told = {name: result.checks.pop(name)[0] for name in ("vision gradients", "pixel gradients")}
    return Result(result.checks, told)


def finalizer(context: Context) -> Any:
    """megatron-core's `finalize_model_grads` in the patch's wrapper."""
    from megatron.core.distributed import finalize_model_grads

    return context.harness.parts().with_replica_sum(finalize_model_grads)


def padding(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    """Free space of blocks is filled with NaN before the tower sees it: the features are those without it."""
    models = Models(context, family)
    filled = 0

    def fill(
        module: nn.Module, args: tuple[Any, ...], given: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        nonlocal filled
        pixels: Tensor = args[0] if args else given["hidden_states"]
        free = (pixels == 0).all(-1)
        filled += int(free.sum())
        pixels = pixels.masked_fill(free[:, None], torch.nan)
        return ((pixels, *args[1:]), given) if args else ((), {**given, "hidden_states": pixels})

    own = batch(images(17), SEED, context.device)
    whole = reference(models, mode, [own], None)[0]
    handle = models.get(mode).vision_model.register_forward_pre_hook(fill, with_kwargs=True)
    try:
        got = step(models, mode, own, None)
    finally:
        handle.remove()
    checks = limited(distances(models, mode, got, whole))
    checks["no rank saw free space"] = (float(not context.any(filled > 0)), 0)
    return Result(checks, {"patches of free space": filled})


def _freeze(options: dict[str, bool], model: Any) -> None:
    """By the target's own method."""
    model.freeze(**options)
