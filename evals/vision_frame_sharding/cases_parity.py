"""Parity of Automodel's towers: features and all gradients, sharded over the group and not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.arms import InDouble, apart, apart_by_name
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Item, images
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.vision_frame_sharding.arms import Call, build, call, checkpoint_tower
from skillgen.evals.vision_frame_sharding.towers import Tower, TowerBatch

DISTANCES = ("features", "parameter gradients", "input gradients")
VIDEO = [Item(2, 3, 5)]
LONG_VIDEO = [Item(2, 2, 9)]
MIX = [Item(2, 2), Item(2, 3, 5), Item(4, 2), Item(3, 2, 2)]
NEVER = 10**6  # a threshold that no batch reaches


def cases(context: Context, family: Tower) -> Iterator[Case]:
    """Every parity case of one family at the CP sizes that the ranks allow."""
    for cp in context.cp_sizes():
        for name, items, options in _arrangements(family):
            yield Case("parity", f"CP {cp}, {name}", partial(parity, context, family, cp, items, **options))
        yield Case("parity", f"CP {cp}, bf16 forward", partial(bf16, context, family, cp))
        yield Case("parity", f"CP {cp}, nothing published: no collective", partial(idle, context, family, cp))
        if getattr(family, "entries", False):
            for name, items in (("images", images(3)), ("video of 5 frames", VIDEO)):
                verdict = "must fail" if items is VIDEO else "must pass"
                title = f"CP {cp}, forced to cut frames, {name} {verdict}"
                yield Case("control", title, partial(forced, context, family, cp, items))


def _arrangements(family: Tower) -> Iterator[tuple[str, list[Item], dict[str, Any]]]:
    for count in (0, 1, 3, 8):
        yield f"{count} image{'' if count == 1 else 's'}", images(count), {}
    if family.video:
        yield "video of 5 frames", VIDEO, {}
        yield "video of 9 frames", LONG_VIDEO, {}
        yield "images and videos", MIX, {}
    mixed = MIX if family.video else images(3)
    yield "frozen", mixed, {"freeze": True, "leaves": False}
    yield "frozen, input gradient", images(1), {"freeze": True}
    yield "tower checkpointed", mixed, {"checkpointed": True}
    yield "call checkpointed, gather included", mixed, {"recompute": True}
    yield "at least 96 patch rows per rank", mixed, {"policy": {"min_local_patch_rows": 96}}
    yield "below both thresholds", mixed, {"policy": {"min_tokens": NEVER, "min_frames": NEVER}}
    yield "few rows, but enough frames", images(3), {"policy": {"min_tokens": NEVER, "min_frames": 3}}


def parity(
    context: Context,
    family: Tower,
    cp: int,
    items: Sequence[Item],
    *,
    freeze: bool = False,
    leaves: bool = True,
    checkpointed: bool = False,
    recompute: bool = False,
    policy: dict[str, Any] | None = None,
) -> Result:
    """Both arms on one batch, in fp64."""
    batch = batch_of(context, family, cp, items)
    arms = []
    for sharded in (False, True):
        model = build(context, family, torch.float64, freeze=freeze)
        if checkpointed and sharded:
            checkpoint_tower(family.tower(model))
        options: dict[str, Any] = {"policy": policy, "recompute": recompute and sharded, "leaves": leaves}
        arms.append(call(context, family, model, batch, cp, sharded=sharded, **options))
    whole, ours = arms
    replicated = (policy or {}).get("min_frames", 0) == NEVER
    if family.part is torch.bfloat16:
        exact = in_double(context, family, batch, cp, freeze=freeze, leaves=leaves)
        usual, found = distances(whole, exact), distances(ours, exact)
        checks = {name: (value, tolerances.twice(usual[name])) for name, value in found.items()}
    else:
        # where each shard's gradient passes the tower by itself, rotary embeddings round it to fp32
        parts = {"features": family.part} if replicated else dict.fromkeys(DISTANCES, family.part)
        checks = {
            name: (value, tolerances.of(torch.float64, parts.get(name, torch.float32)))
            for name, value in distances(ours, whole).items()
        }
    checks["parameters without gradient"] = (ours.without_grad, whole.without_grad)
    if freeze and not leaves:
        checks["backward collectives"] = (len(ours.backward.calls), 0)
    checks |= replicated_rows(batch, ours) if replicated else planned_rows(context, batch, ours, cp, policy or {})
    return Result(checks, {"patch rows": ours.patches, "patch rows, unsharded": whole.patches})


def distances(got: Call, want: Call) -> dict[str, float]:
    """How far features and gradients are apart, each relative to its largest value."""
    found = (
        apart(got.features, want.features),
        apart_by_name(got.grads, want.grads),
        apart(got.pixel_grads, want.pixel_grads),
    )
    return dict(zip(DISTANCES, found, strict=True))


def in_double(context: Context, family: Tower, batch: TowerBatch, cp: int, *, freeze: bool, leaves: bool) -> Call:
    """The unsharded arm with nothing rounded to bf16."""
    with InDouble():
        model = build(context, family, torch.float64, freeze=freeze).double()
        return call(context, family, model, batch, cp, sharded=False, leaves=leaves)


def batch_of(context: Context, family: Tower, cp: int, items: Sequence[Item]) -> TowerBatch:
    """A batch that differs between CP groups."""
    return family.batch(items, SEED + context.replica(context.layout(cp)))


def planned_rows(
    context: Context, batch: TowerBatch, ours: Call, cp: int, policy: dict[str, Any]
) -> dict[str, tuple[float, float]]:
    """The plan covers the batch, and the tower saw what the plan gives this rank, beside blank rows where it may."""
    rank, least = context.layout(cp).cp.rank(), policy.get("min_local_patch_rows", 0)
    missed = off = 0
    for seen, (runs, plan), units in zip(ours.patches, ours.planned, batch.calls, strict=False):
        first = [0, *accumulate(run.count for run in runs)]
        shares = [
            [first[run] + start + i for run, start, count in share for i in range(count)] for share in plan.shares
        ]
        if sorted(unit for share in shares for unit in share) != list(range(len(units))):
            missed += 1
            continue
        mine = [units[unit] for unit in shares[rank]]
        patches, largest = sum(unit.patches for unit in mine), max(unit.patches for unit in units)
        blank = max(largest, 8) if sum(unit.rows for unit in mine) < 2 else 0  # one row is not enough for a tower
        if mine and least > patches:
            blank = max(blank, least - patches + max(largest, 8))
            off += max(least - seen, 0)
        off += max(patches - seen, seen - patches - blank, 0)
    return {
        "calls of the tower, beside one per sharded call": (abs(len(ours.patches) - len(batch.calls)), 0),
        "plans, beside one per sharded call": (abs(len(ours.planned) - len(batch.calls)), 0),
        "plans that do not give each unit to one rank": (missed, 0),
        "patch rows on this rank against the plan": (off, 0),
    }


def replicated_rows(batch: TowerBatch, ours: Call) -> dict[str, tuple[float, float]]:
    """Every rank encodes all there is."""
    missing = sum(unit.patches for units in batch.calls for unit in units) - sum(ours.patches)
    return {"patch rows that this rank did not encode": (missing, 0), "gathered": (len(ours.backward.calls), 0)}


def bf16(context: Context, family: Tower, cp: int) -> Result:
    """In bf16, sharded features are as far from those in fp64 as unsharded ones; twice that is the limit."""
    batch = batch_of(context, family, cp, MIX if family.video else images(3))
    found = []
    for dtype, sharded in ((torch.float64, False), (torch.bfloat16, False), (torch.bfloat16, True)):
        model = build(context, family, dtype, freeze=True)
        arm = call(context, family, model, batch, cp, sharded=sharded, dtype=dtype, leaves=False)
        found.append([level.double() for level in arm.features])
    reference, whole, ours = found
    error = apart(whole, reference)
    numbers = {"error, unsharded": error, "sharded from unsharded": apart(ours, whole)}
    return Result({"error, sharded": (apart(ours, reference), tolerances.twice(error))}, numbers)


def idle(context: Context, family: Tower, cp: int) -> Result:
    """Without a published group, and with the policy disabled, the model's method is what it was."""
    batch = batch_of(context, family, cp, images(3))
    model = build(context, family, torch.float64)
    whole = call(context, family, model, batch, cp, sharded=False)
    off = call(context, family, model, batch, cp, sharded=True, policy={"enabled": False})
    collectives = [arm.forward.calls + arm.backward.calls for arm in (whole, off)]
    return Result(
        {
            "features": (apart(off.features, whole.features), tolerances.of(torch.float64, family.part)),
            "collectives": (sum(map(len, collectives)), 0),
            "plans": (len(whole.planned) + len(off.planned), 0),
        }
    )


def forced(context: Context, family: Tower, cp: int, items: Sequence[Item]) -> Result:
    """Where frames see each other the gate has to reject a cut, and only that."""
    runtime = context.harness.runtime()
    with frames_cut(runtime):
        found = parity(context, family, cp, items).checks
    compared = {name: found[name] for name in ("features", "parameter gradients")}
    rejected = all(not value <= limit for value, limit in compared.values())
    return Result(
        {"the parity gate decided otherwise": (float(context.any(rejected) != any(i.frames > 1 for i in items)), 0)},
        {name: value for name, (value, _) in compared.items()},
    )


@contextmanager
def frames_cut(runtime: Any) -> Iterator[None]:
    """The form of whole items takes a frame for a unit."""
    if not hasattr(runtime, "grid_items"):
        raise Skip("the runtime has no form of whole items")
    form = runtime.grid_items.GridItems
    whole, cut = (form.units, form.take), form.__mro__[1]
    form.units, form.take = cut.units, cut.take
    try:
        yield
    finally:
        form.units, form.take = whole
