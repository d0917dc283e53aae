"""Cost: what a rank keeps, encodes and sends at each mode, in both arms, and whether the cost model foresees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Item
from skillgen.evals.kernel.measure import Traffic, collectives, saved_activations
from skillgen.evals.vision_tp_dp.arms import loss_of
from skillgen.evals.vision_tp_dp.batches import Batch, batch
from skillgen.evals.vision_tp_dp.cases_parity import finalizer
from skillgen.evals.vision_tp_dp.families import MERGE, PATCH, Qwen3VL
from skillgen.evals.vision_tp_dp.models import Models
from skillgen.evals.vision_tp_dp.worlds import Mode, layouts, modes, off
from skillgen.techniques.vision_tp_dp import advice, cost_model

STEPS = 3  # of which the quickest counts
SIDES = ((4, 4), (2, 3))  # feature rows x columns


def cases(context: Context, family: Qwen3VL) -> Iterator[Case]:
    """Every mode of the layouts without replicas of the data."""
    for layout in layouts(context.world):
        for mode in modes(layout) if layout.dp == 1 else ():
            large = Mode(layout, mode.vision_tp, large=True)
            yield Case("cost", str(mode), partial(cost, context, family, large))


def workload(ranks: int) -> list[Item]:
    """Two images per rank, of which every number of vision TP groups can be dealt an equal part."""
    return [Item(*SIDES[i % 2]) for i in range(2 * ranks)]


def cost(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    """Both arms on one batch: the language model's TP degree on every image, and the mode's."""
    models = Models(context, family)
    own = batch(workload(mode.layout.world), SEED, context.device)
    own.mask = own.mask.float()
    own.inputs["pixel_values"] = own.inputs["pixel_values"].float()
    known = "cost", off(mode)
    if known not in context.kept:
        context.kept[known] = measure(context, models, off(mode), own)
    facts = {"replicated": context.kept[known], "sharded": measure(context, models, mode, own)}
    ours, theirs = facts["sharded"], facts["replicated"]
    checks = {
        "patches per rank, share of the replicated": (ours["patches"] / theirs["patches"], 1.01 / mode.vision_dp),
        "activation bytes, share of the replicated": (
            ours["activation bytes"] / theirs["activation bytes"],
            0.9 if mode.vision_dp > 1 else 1.0,
        ),
    }
    case = subject(family, mode)
    checks |= advice.deviations(*case, {name: _most(context, ours[name]) for name in advice.predicted(*case)})
    numbers = {f"{name}, {arm}": value for arm, fact in facts.items() for name, value in fact.items()}
    return Result(checks, numbers)


def _most(context: Context, value: float) -> float:
    """Of the fullest rank."""
    found = torch.tensor(float(value), dtype=torch.float64, device=context.device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found)


def subject(family: Qwen3VL, mode: Mode) -> tuple[cost_model.Tower, cost_model.Job, int]:
    """The mode as the cost model takes it."""
    sizes = family.vision_config(large=True)
    tower = cost_model.Tower(
        hidden=sizes.hidden_size,
        layers=sizes.depth,
        intermediate=sizes.intermediate_size,
        heads=sizes.num_heads,
        out_hidden=sizes.out_hidden_size,
        deepstack=len(sizes.deepstack_visual_indexes),
        patch_size=PATCH,
        positions=sizes.num_position_embeddings,
    )
    pixels = PATCH * MERGE
    images = tuple((item.rows * pixels, item.cols * pixels, 1) for item in workload(mode.layout.world))
    assert mode.vision_tp is not None
    return tower, cost_model.Job(mode.layout.tp, mode.layout.cp, images, dtype="fp32"), mode.vision_tp


def measure(context: Context, models: Models, mode: Mode, own: Batch) -> dict[str, float]:
    """What the tower's part of a step costs this rank; the language model's is left out."""
    model = models.get(mode)
    if mode.vision_tp is not None:
        model.config.finalize_model_grads_func = finalizer(context)
    facts = once(model, own)
    if mode.vision_tp is not None:
        with collectives() as traffic:
            context.harness.parts().sum_replica_gradients(model.vision_model, model.vision_groups.replicas)
        facts["replica gradient bytes"] = _bytes(traffic, "all_reduce")
    facts["weight bytes"] = sum(p.numel() * p.element_size() for p in model.vision_model.parameters())
    model.zero_grad(set_to_none=True)
    facts["busy ms"] = round(1e3 * min(once(model, own)["busy"] for _ in range(STEPS)), 3)
    del facts["busy"]
    return facts


def once(model: Any, own: Batch) -> dict[str, float]:
    """One step; what is counted ends where the language model embeds its words, and begins again with its gradient."""
    facts: dict[str, float] = {"patches": 0}
    forward, backward, hooks = ExitStack(), ExitStack(), ExitStack()
    back = Traffic()
    resumed = 0.0

    def see(_: Any, args: Any, given: dict[str, Any]) -> None:
        facts["patches"] += len(args[0] if args else given["hidden_states"])

    def encoded(*_: Any) -> None:
        facts["busy"] = time.process_time() - started
        facts["activation bytes"] = saved()
        forward.close()

    def returned(_: Any) -> None:
        nonlocal back, resumed
        back, resumed = backward.enter_context(collectives()), time.process_time()

    def watch(_: Any, args: Any, given: dict[str, Any]) -> None:
        given["decoder_input"].register_hook(returned)

    language = model.language_model
    for handle in (
        model.vision_model.register_forward_pre_hook(see, with_kwargs=True),
        language.embedding.register_forward_pre_hook(encoded),
        language.register_forward_pre_hook(watch, with_kwargs=True),
    ):
        hooks.callback(handle.remove)
    inputs, _ = own.leaves(grad=False)
    with hooks, backward, forward:
        there = forward.enter_context(collectives())
        saved = forward.enter_context(saved_activations(model))
        started = time.process_time()
        loss_of(model, inputs, own).backward()
        facts["busy"] += time.process_time() - resumed
    return facts | {
        "tower forward bytes": _bytes(there, "all_reduce"),
        "tower backward bytes": _bytes(back, "all_reduce"),
        "gathered bytes": _bytes(there, "all_to_all_single"),
        "exchanged bytes": _bytes(back, "all_to_all_single"),
        "agreement bytes": _bytes(there, "all_gather"),
    }


def _bytes(traffic: Traffic, name: str) -> int:
    """Sizes of the tensors that calls of one name bring together."""
    return sum(max(pair) for call, pair in zip(traffic.calls, traffic.bytes, strict=True) if call == name)
