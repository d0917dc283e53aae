"""Where one rank cannot go on, every rank has to raise with the reason, and soon: the table, for any arm."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from skillgen.evals.kernel.context import Context, Result
from skillgen.evals.kernel.families import Item, images

REASON = "no memory left on this rank"
# what the last ranks see in the place of images(3), by what a case calls it
OTHERS: dict[str, list[Item]] = {"more": images(4), "order": images(3)[1:] + images(1)}
Hook = Callable[..., None]


@dataclass(frozen=True)
class Arm:
    """A forward of the code on trial on this rank; `hook` goes ahead of the tower."""

    forward: Callable[[Sequence[Item], Hook | None], object]
    fails: bool  # whether this rank is of those that fail, or see another batch
    named: Sequence[str] = field(default_factory=list)  # what the message calls them
    items: Sequence[Item] = field(default_factory=lambda: images(3))


def tower_raises(context: Context, arm: Arm) -> Result:
    """The tower of the ranks that fail raises before it begins."""

    def fail(*_: object) -> None:
        raise RuntimeError(REASON)

    return must_raise(context, lambda: arm.forward(arm.items, fail if arm.fails else None), [*arm.named, REASON])


def batches_differ(context: Context, arm: Arm, others: Sequence[Item]) -> Result:
    """The ranks that fail see other images than the rest."""
    return must_raise(context, lambda: arm.forward(others if arm.fails else arm.items, None), ["batches"])


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
