"""Agreement in Automodel: where one rank cannot go on, every rank raises with the reason, and soon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.agreement import OTHERS, Arm, Hook, batches_differ, must_raise, tower_raises
from skillgen.evals.kernel.arms import apart
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Item, images
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.vision_frame_sharding.arms import build, call, patches_of, published
from skillgen.evals.vision_frame_sharding.cases_parity import NEVER, in_double
from skillgen.evals.vision_frame_sharding.towers import Tower


def cases(context: Context, family: Tower) -> Iterator[Case]:
    """Every agreement case of one family at the smallest CP size, and those of failing ranks at the largest too."""
    smallest, largest = context.cp_sizes()[0], context.cp_sizes()[-1]
    for cp in sorted({smallest, largest}):
        for name, run in (
            ("a rank's tower raises", raising),
            ("a rank's tower gives a row too few", rows_missing),
            ("a rank has other frames", partial(differing, others=OTHERS["more"])),
            ("a rank has another order", partial(differing, others=OTHERS["order"])),
            ("a rank's batch is below the thresholds", below_on_one_rank),
        ):
            yield Case("agreement", f"CP {cp}, {name}", partial(run, context, family, cp))
    for name, trainable in (("a trainable tower is refused", True), ("a frozen tower is sharded", False)):
        yield Case("agreement", f"CP x TP, {name}", partial(cp_and_tp, context, family, trainable=trainable))


def arm(context: Context, family: Tower, cp: int, **policy: Any) -> Arm:
    """Each group's last rank is the one that fails."""
    last = dist.get_process_group_ranks(context.layout(cp).cp)[-1]

    def forward(items: Sequence[Item], hook: Hook | None) -> None:
        model = build(context, family, torch.float64)
        if hook is not None:
            family.tower(model).register_forward_pre_hook(hook)
        call(context, family, model, family.batch(items, SEED), cp, sharded=True, policy=policy)

    return Arm(forward, context.rank == last, [f"rank {last}"])


def raising(context: Context, family: Tower, cp: int) -> Result:
    """The tower of each group's last rank fails."""
    return tower_raises(context, arm(context, family, cp))


def rows_missing(context: Context, family: Tower, cp: int) -> Result:
    """The tower of each group's last rank loses the last row, or image, of what it gives."""

    def shorten(module: nn.Module, args: Any, output: Any) -> Any:
        if isinstance(output, Tensor):
            return output[:-1]
        for name in ("pooler_output", "features", "last_hidden_state"):
            if isinstance(getattr(output, name, None), Tensor):
                setattr(output, name, getattr(output, name)[:-1])
        return output

    last = dist.get_process_group_ranks(context.layout(cp).cp)[-1]
    model, batch = build(context, family, torch.float64), family.batch(images(3), SEED)
    if context.rank == last:
        family.tower(model).register_forward_hook(shorten)
    return must_raise(context, lambda: call(context, family, model, batch, cp, sharded=True), [f"rank {last}"])


def differing(context: Context, family: Tower, cp: int, *, others: Sequence[Item]) -> Result:
    """Each group's last rank sees other images than the rest."""
    if family.batch(others, SEED).calls == family.batch(images(3), SEED).calls:
        raise Skip("its images are all of one size, so another order looks the same")
    return batches_differ(context, arm(context, family, cp), others)


def below_on_one_rank(context: Context, family: Tower, cp: int) -> Result:
    """The last rank's batch has too few units, so that it would encode alone; the others' has enough."""
    fewest = len(family.batch(images(3), SEED).calls[0])
    return batches_differ(context, arm(context, family, cp, min_tokens=NEVER, min_frames=fewest), images(2))


def cp_and_tp(context: Context, family: Tower, *, trainable: bool) -> Result:
    """All ranks are one group of CP x TP: its ranks share sequence shards, so gradients must not be summed over it."""
    model, batch = build(context, family, torch.float64, freeze=not trainable), family.batch(images(3), SEED)
    inputs, _ = batch.moved(torch.float64, context.device, leaves=False)
    if trainable:
        with published(context, context.world, over_tp=True):
            return must_raise(context, lambda: family.features(model, inputs), ["frozen"])
    with patches_of(family, model) as all_rows:
        whole = family.features(model, inputs)
    with published(context, context.world, over_tp=True), patches_of(family, model) as rows:
        features = family.features(model, inputs)
    limit = tolerances.of(torch.float64, family.part)
    if family.part is torch.bfloat16:
        exact = in_double(context, family, batch, context.world, freeze=True, leaves=False).features
        limit, whole = tolerances.twice(apart(whole, exact)), exact
    return Result(
        {
            "features": (apart(features, whole), limit),
            "patch rows, share of all": (sum(rows) / sum(all_rows), 0.99),
        }
    )
