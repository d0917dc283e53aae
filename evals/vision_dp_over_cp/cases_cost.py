"""Cost: what sharding saves per rank and what it spends on the wire, all arms in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from skillgen.evals.kernel.arms import local_loss, to_device
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Batch, Family, Item, Layout
from skillgen.evals.kernel.measure import collectives, now, patches_seen, saved_activations
from skillgen.evals.kernel.mutations import replaced
from skillgen.evals.kernel.rules import planner

STEPS = 4
SLACK = 4096  # bytes, for agreement and alignment


def workload(family: Family, cp: int) -> list[Item]:
    """Two images per rank that can be dealt evenly, but not in this order, neither by number nor by cost.

    A video's unit is the largest of all, so that an even deal gives one to each rank: none then needs a placeholder.
    """
    scale = 2 if cp == 2 else 1
    sides = sorted([(2, 2), (2, 3), (2, 7), (4, 4)] * (cp // 2), key=lambda side: side[0] * side[1])
    items = [Item(scale * rows, scale * cols) for rows, cols in sides]
    video = [Item(4 * scale, 6 * scale, cp)] if family.video else []
    return [*items[:cp], *video, *items[cp:]]


def cases(context: Context, family: Family) -> Iterator[Case]:
    """One cost case per CP size, and one that compares with another method of splitting."""
    for cp in context.cp_sizes():
        yield Case("cost", f"CP {cp}", lambda cp=cp: cost(context, family, cp))  # type: ignore[misc]


def cost(context: Context, family: Family, cp: int) -> Result:
    """Both arms, and the baseline's if one was asked for, on the same batch in the same run."""
    layout = context.layout(cp)
    runtime = context.harness.runtime()
    batch = to_device(family.batch(workload(family, cp), SEED), context.device)
    arms = {"replicated": context.model(family, layout, flag=False, large=True)}
    arms["sharded"] = context.model(family, layout, flag=True, large=True)
    baseline = context.options.get("baseline")
    if baseline:
        arms[baseline] = context.model(family, layout, flag=True, large=True)
    plans: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    facts = {}
    for name, model in arms.items():
        with replaced(runtime, "make_plan", _planner(runtime, baseline if name == baseline else None, plans)):
            facts[name] = once(context, family, model, batch, layout)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(STEPS):
        for name, model in arms.items():
            with replaced(runtime, "make_plan", _planner(runtime, baseline if name == baseline else None, [])):
                times[name].append(timed(context, family, model, batch, layout))
    return _judge(context, family, batch, cp, facts, times, planning_seconds(runtime, plans))


def _judge(
    context: Context,
    family: Family,
    batch: Batch,
    cp: int,
    facts: dict[str, dict[str, Any]],
    times: dict[str, list[tuple[float, float]]],
    planning: float,
) -> Result:
    replicated, sharded = facts["replicated"], facts["sharded"]
    median = {name: statistics.median(wall for wall, _ in pairs) for name, pairs in times.items()}
    busy = {name: min(pair[1] for pair in pairs) for name, pairs in times.items()}
    payload = batch.feature_rows * family.hidden * (1 + family.levels) * 4
    checks = {
        "patches per rank, share of the replicated": (sharded["patches"] / replicated["patches"], 1.15 / cp),
        "activation bytes, share of the replicated": (
            sharded["activations"] / replicated["activations"],
            1 / cp + 0.15,
        ),
        "forward bytes": (sharded["forward"].side(0), payload + SLACK),
        "backward bytes": (sharded["backward"].side(1), payload + SLACK),
        "forward collectives": (len(sharded["forward"].calls), 2 * batch.calls),
        "backward collectives": (len(sharded["backward"].calls), batch.calls),
        "busy time of a step, share of the replicated": (busy["sharded"] / busy["replicated"], 0.9),
    }
    numbers: dict[str, Any] = {"payload bytes": payload, "planning ms": round(1e3 * planning, 4)}
    numbers["step time, sharded over replicated"] = round(median["sharded"] / median["replicated"], 3)
    for name, fact in facts.items():
        numbers |= {
            f"patches, {name}": fact["patches"],
            f"activation bytes, {name}": fact["activations"],
            f"step ms, {name}": round(1e3 * median[name], 3),
            f"busy ms, {name}": round(1e3 * busy[name], 3),
            f"collectives, {name}": [*fact["forward"].calls, *fact["backward"].calls],
            f"bytes received, {name}": fact["forward"].side(0) + fact["backward"].side(0),
        }
        if "peak" in fact:
            numbers[f"allocator peak bytes, {name}"] = fact["peak"]
    if context.options.get("baseline"):
        busiest = [_busiest(context, facts[name]["patches"]) for name in ("sharded", context.options["baseline"])]
        checks["busiest rank's patches, share of the baseline's"] = (busiest[0] / busiest[1], 1.0)
    return Result(checks, numbers)


def once(context: Context, family: Family, model: nn.Module, batch: Batch, layout: Layout) -> dict[str, Any]:
    """One step with everything counted, which also warms the arm up."""
    if context.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(context.device)
    inputs, _ = batch.leaves(torch.float32)
    with patches_seen(family, model) as patches, collectives() as forward, saved_activations(model) as saved:
        loss = local_loss(family, model, inputs, batch, layout)
        activations = saved()
    with collectives() as backward:
        loss.backward()
    model.zero_grad(set_to_none=True)
    facts: dict[str, Any] = {"patches": sum(patches), "activations": activations}
    facts |= {"forward": forward, "backward": backward}
    if context.device.type == "cuda":
        facts["peak"] = torch.cuda.max_memory_allocated(context.device)
    return facts


def timed(context: Context, family: Family, model: nn.Module, batch: Batch, layout: Layout) -> tuple[float, float]:
    """Seconds of forward and backward of the group's slowest rank: on the clock, and busy.

    Busy is processor time on a CPU, where more ranks than cores, or other work, distort the clock.
    """
    inputs = dict(batch.inputs)
    dist.barrier(group=layout.cp)
    started, worked = now(context.device), time.process_time()
    local_loss(family, model, inputs, batch, layout).backward()
    wall = now(context.device) - started
    busy = wall if context.device.type == "cuda" else time.process_time() - worked
    seconds = torch.tensor([wall, busy], device=context.device)
    model.zero_grad(set_to_none=True)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX, group=layout.cp)
    return float(seconds[0]), float(seconds[1])


def planning_seconds(runtime: Any, plans: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> float:
    """Time to plan one step's encoder calls with nothing remembered."""
    make = runtime.plan.make_plan
    best = float("inf")
    for _ in range(5):
        for function in vars(runtime.plan).values():
            getattr(function, "cache_clear", lambda: None)()
        started = time.perf_counter()
        for args, kwargs in plans:
            make(*args, **kwargs)
        best = min(best, time.perf_counter() - started)
    return best


def _planner(runtime: Any, method: str | None, plans: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> Any:
    """make_plan that notes its arguments; with `method`, by that one."""
    make = planner(runtime.plan, method or "balanced")

    def plan(*args: Any, **kwargs: Any) -> Any:
        if method is None:
            plans.append((args, kwargs))
        return make(*args, **kwargs)

    return plan


def _busiest(context: Context, patches: int) -> float:
    most = torch.tensor([float(patches)], device=context.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return float(most)
