"""Parity: with the flag on, features and gradients are those of the replicated encoder, by the model's own forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.arms import Step, distances, step, to_device
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Family, Item, Layout, images
from skillgen.evals.kernel.harness import Skip, or_skip


def batches(family: Family, cp: int) -> Iterator[tuple[str, list[Item]]]:
    """Names and items of the plain parity cases."""
    for count in (0, 1, 2, 3, 5):
        yield f"{count} image{'' if count == 1 else 's'}", images(count)
    yield "a share of one row", [Item(5, 4), *[Item(1, 1)] * (cp - 1)]
    yield "large image last", [*images(4), Item(8, 8)]
    if family.odd_grids:
        yield "odd grids", [Item(2, 3, odd=True), Item(3, 3), Item(4, 2, odd=True)]  # padded by the patch only
    if family.video:
        for frames in (1, 3, 5):
            yield f"video of {frames} temporal patch{'' if frames == 1 else 'es'}", [Item(2, 3, frames)]
        yield "images and videos", [Item(2, 2), Item(2, 3, 3), Item(4, 2), Item(3, 2, 2)]


def cases(context: Context, family: Family) -> Iterator[Case]:
    """Every parity case of one family at the CP sizes that the ranks allow."""
    mixed = [Item(2, 3), Item(4, 2, 3), Item(3, 3)] if family.video else images(3)
    smallest = context.cp_sizes()[0]
    yield Case("parity", "flag set at CP 1: off", lambda: off(context, family, smallest))
    for cp in context.cp_sizes():
        for name, items in batches(family, cp):
            yield _case(context, family, f"CP {cp}, {name}", cp, items)
        for name, options in (
            ("frozen", {"freeze": "all", "input_grads": False}),
            ("frozen tower, trainable projector", {"freeze": "tower"}),
            ("tower checkpointed", {"recompute": "tower"}),
            ("model checkpointed, gather included", {"recompute": "model"}),
            ("no_grad", {"no_grad": True}),
            ("no input gradient", {"input_grads": False}),
        ):
            yield _case(context, family, f"CP {cp}, {name}", cp, mixed, **options)
        yield _case(context, family, f"CP {cp}, frozen, 1 image, input gradient", cp, images(1), freeze="all")
        yield _case(context, family, f"CP {cp}, strided groups", cp, mixed, order="strided")
        yield Case("parity", f"CP {cp}, bf16", lambda cp=cp: bf16(context, family, cp, mixed))  # type: ignore[misc]


def require_replicated(context: Context, family: Family) -> None:
    """Run the model with the flag off: Skip where a package that it wants is not here, else an error is its own."""
    layout = context.layout(context.cp_sizes()[0])
    batch = to_device(family.batch(images(2), SEED), context.device)
    or_skip(lambda: step(family, context.model(family, layout, flag=False), batch, layout), context.harness.optional)


def _case(context: Context, family: Family, name: str, cp: int, items: Sequence[Item], **options: Any) -> Case:
    return Case("parity", name, lambda: parity(context, family, cp, items, **options))


def parity(
    context: Context,
    family: Family,
    cp: int,
    items: Sequence[Item],
    *,
    order: str = "blocks",
    freeze: str = "",
    recompute: str = "",
    no_grad: bool = False,
    input_grads: bool = True,
) -> Result:
    """Both arms on one batch."""
    if order == "strided" and cp == context.world:
        raise Skip(f"strided groups of {cp} need at least {2 * cp} ranks")
    layout = context.layout(cp, order)
    batch = to_device(family.batch(items, SEED + context.replica(layout)), context.device)
    steps = []
    for flag in (False, True):
        odd = any(item.odd for item in items)
        model = context.model(family, layout, flag=flag or odd)
        if odd and not flag:
            family.replicate(model)
        _freeze(family, model, freeze)
        if recompute == "tower":
            family.checkpoint_tower(model)
        with torch.set_grad_enabled(not no_grad):
            grads = input_grads and not no_grad
            steps.append(step(family, model, batch, layout, recompute=recompute == "model", input_grads=grads))
    replicated, sharded = steps
    limit = tolerances.of(torch.float32)
    checks = {name: (value, limit) for name, value in distances(sharded, replicated).items()}
    if items and not freeze and not no_grad:
        checks["encoder parameters without gradient"] = (sharded.without_grad, replicated.without_grad)
    if freeze == "all" and not input_grads:
        checks["backward collectives"] = (len(sharded.backward.calls), 0)
    return Result(checks)


def off(context: Context, family: Family, cp: int) -> Result:
    """Flag set, and off nevertheless: no collective is called, the features are the replicated ones."""
    layout = Layout(cp=context.layout(cp).tp, tp=context.layout(cp).tp, cp_size=1)
    batch = to_device(family.batch(images(2), SEED), context.device)
    steps = []
    for flag in (False, True):
        model = context.model(family, layout, flag=flag)
        steps.append(step(family, model, batch, layout))
    limit = tolerances.of(torch.float32)
    checks = {name: (value, limit) for name, value in distances(steps[1], steps[0]).items()}
    checks["collectives"] = (len(steps[1].forward.calls + steps[1].backward.calls), 0)
    return Result(checks)


def _freeze(family: Family, model: nn.Module, what: str) -> None:
    if what:
        family.tower(model).requires_grad_(False)
        family.projector(model).requires_grad_(what == "tower")


def bf16(context: Context, family: Family, cp: int, items: Sequence[Item]) -> Result:
    """Errors against the replicated fp32 run; the sharded run's is at most twice the replicated bf16 run's."""
    layout = context.layout(cp)
    batch = to_device(family.batch(items, SEED + context.replica(layout)), context.device)
    reference = _half(context, family, layout, batch, False, torch.float32)
    replicated = distances(_half(context, family, layout, batch, False, torch.bfloat16), reference)
    ours = _half(context, family, layout, batch, True, torch.bfloat16)
    sharded = distances(ours, reference)
    numbers = {f"{name}, replicated": value for name, value in replicated.items()}
    checks = {name: (sharded[name], tolerances.twice(replicated[name])) for name in sharded if name != "loss"}
    payload = 2 * batch.feature_rows * family.hidden * (1 + family.levels)
    checks["forward bytes"] = (ours.forward.side(0), payload + 2 * 16 * cp * batch.calls)  # the rest is agreement
    checks["backward bytes"] = (ours.backward.side(1), payload)
    return Result(checks, numbers)


def _half(context: Context, family: Family, layout: Layout, batch: Any, flag: bool, dtype: torch.dtype) -> Step:
    model = context.model(family, layout, flag=flag)
    if dtype != torch.float32:
        model.to(dtype)
    return step(family, model, batch, layout, dtype=dtype)
