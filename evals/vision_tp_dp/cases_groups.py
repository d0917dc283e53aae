"""Groups: who is with whom on every rank, which groups are the language model's own, and that replicas start equal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.vision_tp_dp.families import Qwen3VL
from skillgen.evals.vision_tp_dp.models import Models
from skillgen.evals.vision_tp_dp.worlds import Mode, layouts, modes

# Of helpers that know no language model: world, TP, DP, and the columns.
COLUMNS = {
    (16, 4, 4): [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]],
    (8, 1, 4): [[0, 1, 2, 3], [4, 5, 6, 7]],
    (4, 4, 1): [[0], [1], [2], [3]],
}
TOGETHER = {
    (16, 4): [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
    (8, 1): [[0], [1], [2], [3], [4], [5], [6], [7]],
}


def cases(context: Context, family: Qwen3VL) -> Iterator[Case]:
    """The published lists; then the groups of a built model at every mode that the ranks hold."""
    yield Case("groups", "lists of larger worlds", partial(_lists, context))
    for layout in layouts(context.world):
        for mode in modes(layout):
            yield Case("groups", str(mode), partial(_groups, context, family, mode))
            if mode.layout.tp > (mode.vision_tp or 1):
                yield Case("groups", f"{mode}: replicas start equal", partial(_equal, context, family, mode))


def _lists(context: Context) -> Result:
    parts = context.harness.parts()
    found = {f"columns of {key}": parts.dp_columns(range(key[0]), *key[1:]) != lists for key, lists in COLUMNS.items()}
    found |= {
        f"TP groups of {key}": parts.tp_groups(range(key[0]), key[1]) != lists for key, lists in TOGETHER.items()
    }
    return Result({name: (float(wrong), 0.0) for name, wrong in found.items()})


def wanted(mode: Mode, rank: int, grid: Any) -> dict[str, list[int] | None]:
    """This rank's groups by megatron-core's own enumeration: the text TP degree is vision TP x replicas."""
    lists = {"tp": "vtp", "column": ["replica", "cp"], "replicas": "replica"}
    mine = {name: next(m for m in grid.get_rank_enum(dims) if rank in m) for name, dims in lists.items()}
    return {name: ranks if len(ranks) > 1 or name == "tp" else None for name, ranks in mine.items()}


def _groups(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    from megatron.core.hyper_comm_grid import HyperCommGrid

    assert mode.vision_tp is not None
    layout = mode.layout
    model = Models(context, family).get(mode)
    shape = [mode.vision_tp, layout.tp // mode.vision_tp, layout.cp, layout.dp]
    grid = HyperCommGrid(shape, ["vtp", "replica", "cp", "dp"])
    made = {name: getattr(model.vision_groups, name) for name in ("tp", "column", "replicas")}
    ranks = {name: dist.get_process_group_ranks(group) if group is not None else None for name, group in made.items()}
    expected = wanted(mode, context.rank, grid)
    tower = model.vision_model
    checks = {
        f"{name}: {ranks[name]}, not {want}": (float(ranks[name] != want), 0.0) for name, want in expected.items()
    }
    for name, group in made.items():
        checks[f"{name} is made anew"] = (float(_made_anew(group, model.pg_collection)), 0.0)
    checks["the tower is on another TP group"] = (float(tower.pg_collection.tp is not made["tp"]), 0)
    checks["the tower's configured TP degree"] = (abs(tower.config.tensor_model_parallel_size - mode.vision_tp), 0)
    checks["a sum over a group is wrong"] = (sum(_sum_error(context, group) for group in made.values()), 0)
    return Result(checks, {name: str(value) for name, value in ranks.items()})


def _made_anew(group: dist.ProcessGroup | None, text: Any) -> bool:
    """Whether the language model has a group of the same ranks, and this is none of them; a rank alone may be."""
    if group is None or (group.size() == 1 < text.tp.size()):
        return False
    ranks = dist.get_process_group_ranks(group)
    same = [theirs for theirs in (text.tp, text.cp, text.tp_cp) if dist.get_process_group_ranks(theirs) == ranks]
    return bool(same) and not any(group is theirs for theirs in same)


def _sum_error(context: Context, group: dist.ProcessGroup | None) -> float:
    if group is None:
        return 0.0
    value = torch.tensor([float(context.rank)], device=context.device)
    dist.all_reduce(value, group=group)
    return abs(float(value) - sum(dist.get_process_group_ranks(group)))


def _equal(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    """Ranks of a text TP group draw their own random numbers, as megatron-core has it; replicas must not differ."""
    collection = Models(context, family).enter(mode.layout)
    torch.manual_seed(1000 + collection.tp.rank())
    model = family.build(mode, collection).to(context.device)
    flat = torch.cat(
        [tensor.flatten().double() for tensor in model.vision_model.state_dict().values() if tensor is not None]
    )
    group = model.vision_groups.column  # replicas, and the same over CP, whose ranks draw alike
    others = [torch.empty_like(flat) for _ in range(group.size())]
    dist.all_gather(others, flat, group=group)
    return Result({"largest difference of a weight": (max(float((other - flat).abs().max()) for other in others), 0)})
