"""Agreement: where one rank cannot go on, every rank raises with the reason, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch.distributed as dist

from skillgen.evals.kernel.arms import step, to_device
from skillgen.evals.kernel.context import SEED, Case, Context, Result, member_lists
from skillgen.evals.kernel.families import Family, Item, Layout
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.vision_dp_over_cp.cases_parity import images


def cases(context: Context, family: Family) -> Iterator[Case]:
    """Every agreement case of one family, at the smallest CP size and, for the last two, at the largest."""
    smallest, largest = context.cp_sizes()[0], context.cp_sizes()[-1]
    yield Case("agreement", "wrong group size", lambda: wrong_size(context, family, smallest))
    yield Case("agreement", "equal size, other members", lambda: other_members(context, family, smallest))
    yield Case("agreement", "another group of the same members", lambda: same_members(context, family, smallest))
    for cp in sorted({smallest, largest}):
        yield Case("agreement", f"CP {cp}, a rank's tower raises", lambda cp=cp: tower_raises(context, family, cp))  # type: ignore[misc]
        for name, others in (
            ("a rank has one image more", images(4)),
            ("a rank has another order", images(3)[1:] + images(1)),
        ):
            yield Case("agreement", f"CP {cp}, {name}", partial(batches_differ, context, family, cp, others))


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


def tower_raises(context: Context, family: Family, cp: int) -> Result:
    """The tower of each group's last rank fails."""
    layout = context.layout(cp)
    culprit = dist.get_process_group_ranks(layout.cp)[-1]
    reason = "no memory left on this rank"

    def fail(*_: object) -> None:
        raise RuntimeError(reason)

    def forward() -> None:
        _forward(context, family, layout, broken=fail if context.rank == culprit else None)

    return must_raise(context, forward, [f"rank {culprit}", reason])


def batches_differ(context: Context, family: Family, cp: int, others: Sequence[Item]) -> Result:
    """Each group's last rank sees other images than the rest."""
    layout = context.layout(cp)
    items = others if layout.cp.rank() == cp - 1 else images(3)
    return must_raise(context, lambda: _forward(context, family, layout, items=items), ["batches"])


def must_raise(context: Context, action: Callable[[], object], needles: list[str]) -> Result:
    """The action has to raise on this rank, within the limit, with every needle in its message."""
    started = time.perf_counter()
    message = ""
    try:
        action()
    except Exception as error:  # what it says is what is judged
        message = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - started
    missing = [needle for needle in needles if needle not in message]
    return Result(
        checks={
            "ranks that did not raise": (float(not message), 0),
            "seconds": (seconds, context.limit),
            "reasons missing from the message": (len(missing), 0),
        },
        numbers={"message": message[:400], "seconds": round(seconds, 4)},
    )


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
