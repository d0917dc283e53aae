"""Groups: each way of the target makes on every rank what the definition says, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from skillgen.evals.hierarchical_cp.families import Part
from skillgen.evals.hierarchical_cp.paths import Made, Paths, paths_of
from skillgen.evals.kernel import tables
from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.kernel.tables import Shape


def cases(context: Context, part: Part) -> Iterator[Case]:
    """Every layout on every way, an offset grid where ranks are left for one, and what stays behind."""
    paths = paths_of(context)
    for shape in tables.shapes(context.world):
        for name in paths.names:
            yield Case("groups", f"{shape}, {name}", partial(_made, context, paths, shape, name))
    if paths.is_bridge and context.world >= 8:
        shape = Shape(1, 2, 2, offset=context.world - 4)
        yield Case("groups", f"{shape}, decentralized", partial(_offset, context, paths, shape))
    first = next(tables.shapes(context.world))
    for before in paths.names:
        for after in paths.names:
            name = f"{before} with, then {after} without: nothing stale"
            yield Case("groups", name, partial(_stale, paths, first, before, after))


def _made(context: Context, paths: Paths, shape: Shape, name: str) -> Result:
    try:
        made = paths.make(name, shape)
        wanted = tables.expected(shape, context.rank)
        assert wanted is not None
        result = compare(made, wanted)
        groups = made.collection.hcp if name != "MPU" else paths.stale()
        if made.hcp and not result.checks["levels differ from the definition"][0]:
            result.checks["a level's sum is wrong"] = (_sums(context, groups, wanted[1:]), 0)
        return result
    finally:
        paths.destroy()


def compare(made: Made, wanted: tuple[list[int], list[int], list[int]]) -> Result:
    """Members and their order: inner first, each in the order of the CP group."""
    cp, *levels = wanted
    return Result(
        checks={
            "the CP group differs from the definition": (float(made.cp != cp), 0),
            "levels differ from the definition": (float(made.hcp != levels), 0),
        },
        numbers={"CP": made.cp, "levels": made.hcp},
    )


def _sums(context: Context, groups: list[Any], members: tuple[list[int], ...]) -> float:
    """A sum of rank numbers over each level, against what it must be."""
    wrong = 0.0
    for group, ranks in zip(groups, members, strict=True):
        value = torch.tensor([float(context.rank)], device=context.device)
        dist.all_reduce(value, group=group)
        wrong += abs(float(value) - sum(ranks))
    return wrong


def _offset(context: Context, paths: Paths, shape: Shape) -> Result:
    try:
        made = paths.make_offset(shape)
        wanted = tables.expected(shape, context.rank)
        if wanted is not None:
            return compare(made, wanted)
        return Result(checks={"a rank outside the grid has groups": (float(made.collection.hcp is not None), 0)})
    finally:
        paths.destroy()


def _stale(paths: Paths, shape: Shape, before: str, after: str) -> Result:
    """A run with the hierarchy, and one without it in the same process."""
    try:
        paths.make(before, shape)
        paths.destroy()
        made = paths.make(after, shape, on=False, first=False)
        return Result(
            checks={
                "megatron-core still holds groups": (float(bool(paths.stale())), 0),
                "the collection holds groups": (float(bool(made.hcp)), 0),
            }
        )
    finally:
        paths.destroy()
