"""Comparison with upstream's own sharding of the same tree, on the same batches, in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.arms import apart
from skillgen.evals.kernel.automodel import UPSTREAM
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.measure import collectives, now
from skillgen.evals.kernel.workloads import SMALL, WORKLOADS, Grid, lognormal_images, units
from skillgen.evals.vision_frame_sharding.arms import build, published, weights
from skillgen.evals.vision_frame_sharding.reads import HostReads
from skillgen.evals.vision_frame_sharding.towers import HIDDEN, Tower, TowerBatch

DRAWS = 50
SIZES = (4, 8, 16)  # ranks for which plans are made, without running them
HIDDEN_SIZE, INTERMEDIATE_SIZE = 1152, 4304  # of Qwen3-VL's tower
BALANCE = 1.02  # busiest rank's cost over the lower bound, on average
BYTES = 1.05  # bytes gathered over those of an all-gather without padding
NOT_WORSE = 1.002  # of upstream's cost; two good plans differ in the fourth digit
STEPS = 4
MILLISECONDS = {"a video of 4096 frames": 20.0, "4096 images": 80.0}  # four times the goal: machines are slow or busy


def cases(context: Context, family: Tower) -> Iterator[Case]:
    """Plans of many draws, once per run, then real towers of the families that upstream shards."""
    if not (family.wired and context.harness.in_forward):
        return
    if not context.options.get("plans were compared"):
        context.options["plans were compared"] = True
        for ranks in SIZES:
            for name, draw in WORKLOADS.items():
                title = f"plans for {ranks} ranks, {DRAWS} draws: {name}"
                yield Case("compare", title, partial(plans, context, ranks, draw))
        yield Case("compare", "planning time", partial(planning_time, context))
    for cp in context.cp_sizes():
        for name, draw in SMALL.items():
            yield Case("compare", f"CP {cp}, {name}", partial(towers, context, family, cp, draw))


def plans(context: Context, ranks: int, draw: Callable[[Random], list[Grid]]) -> Result:
    """Cost of the busiest rank over the lower bound: the mean, or the largest frame."""
    if context.rank:
        return Result()
    alpha = 2 * HIDDEN_SIZE + INTERMEDIATE_SIZE
    found: dict[str, list[float]] = {"ours": [], "upstream": [], "ours over upstream": [], "bytes, upstream": []}
    for seed in range(DRAWS):
        grids = draw(Random(seed))
        sizes = units(grids)
        ours = [sum(cost(sizes[i], alpha) for i in share) for share in _our_shares(context, grids, ranks, alpha)]
        cuts = _upstream_cuts(context, sizes, ranks)
        theirs = [sum(cost(p, alpha) for p in sizes[a:b]) for a, b in pairwise(cuts)]
        bound = lower_bound(sizes, ranks, alpha)
        rows = [sum(sizes[a:b]) for a, b in pairwise(cuts)]
        for name, value in zip(
            found,
            (max(ours) / bound, max(theirs) / bound, max(ours) / max(theirs), ranks * max(rows) / sum(rows)),
            strict=True,
        ):
            found[name].append(value)
    return Result(
        {
            "busiest rank over the lower bound, mean": (statistics.mean(found["ours"]), BALANCE),
            "busiest rank over upstream's, worst draw": (max(found["ours over upstream"]), NOT_WORSE),
        },
        {f"{name}, mean and worst": [statistics.mean(values), max(values)] for name, values in found.items()},
    )


def cost(patches: int, alpha: int) -> int:
    """FLOPs of a frame, up to a factor: attention and linear layers."""
    return patches * (patches + alpha)


def lower_bound(sizes: list[int], ranks: int, alpha: int) -> float:
    """What no plan can undercut."""
    costs = [cost(size, alpha) for size in sizes]
    return max(sum(costs) / ranks, max(costs))


def _our_shares(context: Context, grids: list[Grid], ranks: int, alpha: int) -> list[list[int]]:
    """Frames by their number, rank by rank."""
    planner = context.harness.runtime().plan
    plan = planner.make_plan([planner.Run(h * w, t) for t, h, w in grids], ranks, alpha=alpha)
    first = [sum(t for t, _, _ in grids[:run]) for run in range(len(grids))]
    shares = [[first[run] + start + i for run, start, count in share for i in range(count)] for share in plan.shares]
    assert sorted(frame for share in shares for frame in share) == list(range(sum(t for t, _, _ in grids)))
    return shares


def _upstream_cuts(context: Context, sizes: list[int], ranks: int) -> list[int]:
    """Upstream's cuts; with fewer frames than ranks it gives each rank one."""
    upstream = context.harness.load(UPSTREAM)
    policy = upstream.CpVisionFrameShardingConfig(cost_alpha=3 * HIDDEN_SIZE)
    cuts = upstream._contiguous_balanced_bounds(torch.tensor(sizes), ranks, config=policy)
    return cuts if cuts is not None else [min(rank, len(sizes)) for rank in range(ranks + 1)]


def planning_time(context: Context) -> Result:
    """Processor time of one plan for 8 ranks, nothing remembered; upstream's cuts beside it."""
    if context.rank:
        return Result()
    planner, alpha, ranks = context.harness.runtime().plan, 2 * HIDDEN_SIZE + INTERMEDIATE_SIZE, 8
    draws = {"a video of 4096 frames": [(4096, 16, 16)], "4096 images": lognormal_images(4096, Random(1))}
    checks, numbers = {}, {}
    for name, grids in draws.items():
        runs, sizes = [planner.Run(h * w, t) for t, h, w in grids], units(grids)
        numbers[f"ms, {name}, upstream"] = _best(lambda sizes=sizes: _upstream_cuts(context, sizes, ranks))  # type: ignore[misc]

        def plan(runs: Any = runs) -> None:
            planner._make_plan.cache_clear()
            planner.make_plan(runs, ranks, alpha=alpha)

        checks[f"ms, {name}"] = (_best(plan), MILLISECONDS[name])
    return Result(checks, numbers)


def _best(action: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(20):
        started = time.process_time()
        action()
        best = min(best, time.process_time() - started)
    return 1e3 * best


def towers(context: Context, family: Tower, cp: int, draw: Callable[[Random], list[Grid]]) -> Result:
    """Both shardings of one batch by the real tower: cost, bytes, host reads, time of a step."""
    grids = draw(Random(SEED))
    batch = family.from_grids(grids, SEED)  # type: ignore[attr-defined]
    model = build(context, family, torch.float32, large=True)
    methods = {"ours": _ours, "upstream": _upstream}
    facts = {name: once(context, family, model, batch, cp, method) for name, method in methods.items()}
    times: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(STEPS):
        for name, method in methods.items():
            times[name].append(timed(context, family, model, batch, cp, method))
    vision: Any = family.tower(model).config
    alpha = 2 * vision.hidden_size + vision.intermediate_size
    bound = lower_bound(units(grids), cp, alpha)
    needed = batch.rows * HIDDEN * (1 + family.levels) * 4
    ratio: dict[str, float] = {}
    numbers: dict[str, Any] = {}
    for name, fact in facts.items():
        spent = torch.tensor(float(sum(t * cost(h * w, alpha) for t, h, w in fact["grids"])), dtype=torch.float64)
        dist.all_reduce(spent, op=dist.ReduceOp.MAX, group=context.layout(cp).cp)
        ratio[name] = float(spent) / bound
        reads = fact["reads"]
        numbers |= {
            f"busiest rank over the lower bound, {name}": round(ratio[name], 4),
            f"forward bytes over needed, {name}": round(fact["forward"].side(0) / needed, 4),
            f"backward bytes over needed, {name}": round(fact["backward"].side(1) / needed, 4),
            f"collectives, {name}": [fact["forward"].calls, fact["backward"].calls],
            f"host reads before the tower, {name}": reads["before"],
            f"host reads after the tower, {name}": reads["after"],
            f"host reads aside, {name}": reads["aside"],
            f"busy ms of a step, {name}": round(1e3 * min(times[name]), 2),
        }
    ours, upstream = facts["ours"], facts["upstream"]
    return Result(
        {
            "features, ours from upstream's": (
                apart(ours["features"], upstream["features"]),
                tolerances.of(torch.float32),
            ),
            "busiest rank over the lower bound": (ratio["ours"], BALANCE),
            "busiest rank over upstream's": (ratio["ours"] / ratio["upstream"], NOT_WORSE),
            "forward bytes over needed": (ours["forward"].side(0) / needed, BYTES),
            "backward bytes over needed": (ours["backward"].side(1) / needed, BYTES),
            "host reads after the tower that wait for it": (ours["reads"]["after"], 0),
            "host reads before the tower over upstream's": (
                ours["reads"]["before"] / max(upstream["reads"]["before"], 1),
                1.0,
            ),
        },
        numbers,
    )


Method = Callable[[Context, Tower, Any, dict[str, Any], HostReads | None], list[torch.Tensor]]


def _ours(context: Context, family: Tower, model: Any, inputs: dict[str, Any], reads: HostReads | None) -> Any:
    """The patched method; reads are counted from the sharded call's start to its end."""
    if reads is None:
        return family.features(model, inputs)
    glue = context.harness.glue()
    shard = glue.shard
    with mock.patch.object(glue, "shard", lambda *args, **kwargs: reads.encoding(shard(*args, **kwargs))):
        return family.features(model, inputs)


def _upstream(context: Context, family: Tower, model: Any, inputs: dict[str, Any], reads: HostReads | None) -> Any:
    """Upstream's function, called as upstream's method does."""
    distribute = context.harness.load(UPSTREAM).maybe_distribute_visual
    return family.upstream(model, inputs, distribute if reads is None else reads.encoding(distribute))


def once(context: Context, family: Tower, model: Any, batch: TowerBatch, cp: int, method: Method) -> dict[str, Any]:
    """One step with everything counted."""
    inputs, _ = batch.moved(torch.float32, context.device, leaves=False)
    tower, seen, reads = family.tower(model), [], HostReads()

    def note(module: Any, args: Any, kwargs: Any) -> None:
        seen.extend((args[1] if len(args) > 1 else kwargs["grid_thw"]).tolist())

    handle = tower.register_forward_pre_hook(note, with_kwargs=True)
    with published(context, cp):
        with collectives() as forward:
            method(context, family, model, inputs, None)
        handle.remove()
        with reads.watching(tower):
            features = method(context, family, model, inputs, reads)
        with collectives() as backward:
            _loss(features, context, cp).backward()
    model.zero_grad(set_to_none=True)
    kept = [level.detach() for level in features]
    return {"features": kept, "grids": seen, "forward": forward, "backward": backward, "reads": reads.reads}


def timed(context: Context, family: Tower, model: Any, batch: TowerBatch, cp: int, method: Method) -> float:
    """Seconds of a step on the group's slowest rank: processor time on a CPU, where ranks share cores."""
    inputs, _ = batch.moved(torch.float32, context.device, leaves=False)
    group = context.layout(cp).cp
    dist.barrier(group=group)
    clock = time.process_time if context.device.type == "cpu" else lambda: now(context.device)
    started = clock()
    with published(context, cp):
        _loss(method(context, family, model, inputs, None), context, cp).backward()
    seconds = torch.tensor([clock() - started], device=context.device)
    model.zero_grad(set_to_none=True)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX, group=group)
    return float(seconds)


def _loss(features: list[torch.Tensor], context: Context, cp: int) -> torch.Tensor:
    """This rank's shard of the rows."""
    rank = context.layout(cp).cp.rank()
    return torch.stack([(level * weights(level))[rank::cp].sum() for level in features]).sum()
