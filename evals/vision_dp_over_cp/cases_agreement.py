"""Agreement: where one rank cannot go on, every rank raises with the reason, and soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch.distributed as dist

from skillgen.evals.kernel.agreement import OTHERS, Arm, Hook, batches_differ, must_raise, tower_raises
from skillgen.evals.kernel.arms import step, to_device
from skillgen.evals.kernel.context import SEED, Case, Context, Result, member_lists
from skillgen.evals.kernel.families import Family, Item, Layout, images
from skillgen.evals.kernel.harness import Skip


def cases(context: Context, family: Family) -> Iterator[Case]:
    """Every agreement case of one family, at the smallest CP size and, for the last two, at the largest."""
    smallest, largest = context.cp_sizes()[0], context.cp_sizes()[-1]
    yield Case("agreement", "wrong group size", lambda: wrong_size(context, family, smallest))
    yield Case("agreement", "equal size, other members", lambda: other_members(context, family, smallest))
    yield Case("agreement", "another group of the same members", lambda: same_members(context, family, smallest))
    for cp in sorted({smallest, largest}):
        yield Case("agreement", f"CP {cp}, a rank's tower raises", partial(_raising, context, family, cp))
        for name, others in (
            ("a rank has one image more", OTHERS["more"]),
            ("a rank has another order", OTHERS["order"]),
        ):
            run = partial(_differing, context, family, cp, others)
            yield Case("agreement", f"CP {cp}, {name}", run)


def wrong_size(context: Context, family: Family, cp: int) -> Result:
    """The configuration says twice as many ranks as the group has."""
    layout = replace(context.layout(cp), cp_size=2 * cp)
    return must_raise(context, lambda: _forward(context, family, layout), [str(cp), str(2 * cp)])


def other_members(context: Context, family: Family, cp: int) -> Result:
    """The language model slices its sequence with a group of the same size but other ranks."""
    if context.world < 2 * cp:
        raise Skip(f"two different groups of {cp} need at least {2 * cp} ranks")
    layout = context.layout(cp)
    other = context.new_groups(member_lists(context.world, cp, "strided"))
    ranks = [str(dist.get_process_group_ranks(group)) for group in (layout.cp, other)]
    return must_raise(context, lambda: _forward(context, family, replace(layout, sliced_with=other)), ranks)


def same_members(context: Context, family: Family, cp: int) -> Result:
    """A second group object with the same ranks is no reason to refuse."""
    layout = context.layout(cp)
    twin = context.new_groups(member_lists(context.world, cp, "blocks"))
    _forward(context, family, replace(layout, sliced_with=twin))
    return Result({"raised": (0, 0)})


def _raising(context: Context, family: Family, cp: int) -> Result:
    return tower_raises(context, arm(context, family, cp))


def _differing(context: Context, family: Family, cp: int, others: Sequence[Item]) -> Result:
    return batches_differ(context, arm(context, family, cp), others)


def arm(context: Context, family: Family, cp: int) -> Arm:
    """Each group's last rank is the one that fails."""
    layout = context.layout(cp)
    last = dist.get_process_group_ranks(layout.cp)[-1]

    def forward(items: Sequence[Item], hook: Hook | None) -> None:
        _forward(context, family, layout, items=items, broken=hook)

    return Arm(forward, context.rank == last, [f"rank {last}"])


def _forward(
    context: Context,
    family: Family,
    layout: Layout,
    *,
    items: Sequence[Item] = (),
    broken: Callable[..., None] | None = None,
) -> None:
    batch = to_device(family.batch(items or images(3), SEED), context.device)
    model = context.model(family, layout, flag=True)
    if broken is not None:
        family.tower(model).register_forward_pre_hook(broken)
    step(family, model, batch, layout)
