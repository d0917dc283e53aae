"""The patch that wraps megatron-core's own splitter: forward parity, and its known failures as expected ones."""

from __future__ import annotations

from collections.abc import Iterator

from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.kernel.families import Family, Item, images
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.vision_dp_over_cp.cases_agreement import wrong_size
from skillgen.evals.vision_dp_over_cp.cases_parity import parity

# Frames of a single video whose lone last frame the splitter hands to a rank as an image (tubelets of 2), by CP size.
LONE_FRAME = {2: (3,), 4: (3, 5, 7), 8: (3, 5, 7, 9, 11, 13, 19)}


def cases(context: Context, family: Family) -> Iterator[Case]:
    """Cases at the one CP size that the helpers can do on gloo: their group must be ranks 0 to n - 1."""
    cp = context.world

    def case(name: str, items: list[Item], *, fails: bool = False) -> Case:
        return Case("parity", f"CP {cp}, mcore splitter, {name}", lambda: _run(context, family, items, fails=fails))

    for count in (0, 1, 2, 3, 5):
        yield case(f"{count} image{'' if count == 1 else 's'}", images(count))
    if family.variant == family.variants[0]:
        for patches in (2, 3, 4, 5):
            frames = 2 * patches - 1
            known = frames in LONE_FRAME.get(cp, ())
            name = f"video of {frames} frames{' (known to fail)' if known else ''}"
            yield case(name, [Item(2, 3, patches)], fails=known)
    yield Case("agreement", "wrong group size", lambda: wrong_size(context, family, cp))
    for kind in ("cost", "training"):
        yield Case(kind, "mcore splitter", _backward_not_on_gloo)


def _run(context: Context, family: Family, items: list[Item], *, fails: bool = False) -> Result:
    """Features under no_grad; with `fails`, the gate has to see the known failure."""
    from megatron.core import parallel_state

    parallel_state._CONTEXT_PARALLEL_GROUP = context.layout(context.world).cp  # where the helpers look for it
    result = parity(context, family, context.world, items, no_grad=True)
    if not fails:
        return result
    seen = context.any(any(not value <= limit for value, limit in result.checks.values()))
    return Result(
        {"the known failure was not seen": (float(not seen), 0)}, {k: v for k, (v, _) in result.checks.items()}
    )


def _backward_not_on_gloo() -> Result:
    raise Skip("megatron-core's gather has no backward for uneven shards on gloo: only forward is judged")
