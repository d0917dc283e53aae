"""Agreement: where a vision TP group cannot go on, every rank of the microbatch raises with the reason, and soon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch.distributed as dist

from skillgen.evals.kernel.agreement import Arm, Hook, batches_differ, must_raise, tower_raises
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Item
from skillgen.evals.vision_tp_dp.arms import step
from skillgen.evals.vision_tp_dp.batches import batch, images
from skillgen.evals.vision_tp_dp.families import Qwen3VL
from skillgen.evals.vision_tp_dp.models import Models
from skillgen.evals.vision_tp_dp.worlds import Mode, layouts, modes


def cases(context: Context, family: Qwen3VL) -> Iterator[Case]:
    """At every mode with more than one vision TP group; all of a group fail together, as its collectives want."""
    for layout in layouts(context.world):
        for mode in modes(layout):
            if mode.vision_dp == 1 or layout.dp > 1:
                continue
            yield Case("agreement", f"{mode}: the tower raises", partial(raising, context, family, mode))
            for name, others in (
                ("one image more", images(4)),
                ("another order", images(3)[1:] + images(1)),
            ):
                run = partial(differing, context, family, mode, others)
                yield Case("agreement", f"{mode}: a group has {name}", run)
    small = Mode(layouts(context.world)[0], 1, blocks=16)
    yield Case("agreement", f"{small}: an image is larger", partial(too_small, context, family, small))


def arm(context: Context, family: Qwen3VL, mode: Mode, items: Sequence[Item]) -> Arm:
    """All of the last vision TP group of a microbatch fail."""
    models = Models(context, family)
    model = models.get(mode)

    def forward(items: Sequence[Item], hook: Hook | None) -> None:
        handle = model.vision_model.register_forward_pre_hook(hook) if hook is not None else None
        try:
            _forward(context, models, mode, items)
        finally:
            if handle is not None:
                handle.remove()

    return Arm(forward, _in_last_group(model), ["rank"], items)


def raising(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    """The tower of the last vision TP group of a microbatch fails before it begins."""
    return tower_raises(context, arm(context, family, mode, images(5)))


def differing(context: Context, family: Qwen3VL, mode: Mode, others: Sequence[Item]) -> Result:
    """The last vision TP group of a microbatch sees other images than the rest."""
    return batches_differ(context, arm(context, family, mode, images(3)), others)


def too_small(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    """The message names the option, its value, and what the largest image needs."""
    models = Models(context, family)
    needles = ["vision_block_patches", str(mode.blocks), str(max(batch(images(3), SEED, context.device).patches))]
    return must_raise(context, lambda: _forward(context, models, mode, images(3)), needles)


def _in_last_group(model: Any) -> bool:
    world = dist.get_process_group_ranks(model.pg_collection.tp_cp)
    return world[-1] in dist.get_process_group_ranks(model.vision_groups.tp)


def _forward(context: Context, models: Models, mode: Mode, items: Sequence[Item]) -> None:
    step(models, mode, batch(items, SEED, context.device), None)
