"""Wiring: what the layers of a model hand to Transformer Engine's attention, on each way to the groups."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch.distributed as dist

from skillgen.evals.hierarchical_cp import gpt
from skillgen.evals.hierarchical_cp.families import Part
from skillgen.evals.hierarchical_cp.paths import TYPE, Paths, paths_of
from skillgen.evals.kernel import tables
from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.kernel.tables import Shape


def cases(context: Context, part: Part) -> Iterator[Case]:
    """Every layout; then the second initialisation, a mixed model, and one without the hierarchy."""
    paths = paths_of(context)
    for shape in tables.shapes(context.world):
        for name, explicit in ways(paths):
            said = f"{name}{'' if explicit else ', layers ask the globals'}"
            yield Case("wiring", f"{shape}, {said}", partial(_handed, context, paths, shape, name, explicit))
    first = next(tables.shapes(context.world))
    for name in paths.names:
        for what, run in (("after re-initialisation", _again), ("every other layer", _mixed), ("off", _off)):
            yield Case("wiring", f"{first}, {name}, {what}", partial(run, context, paths, first, name))
    if paths.rebinding() is not None:
        yield Case("wiring", f"{first}, rebound to a second collection", partial(_rebound, context, paths, first))


def ways(paths: Paths) -> list[tuple[str, bool]]:
    """Each path with its collection given to the model; the globals are also found without one."""
    given = [(name, True) for name in paths.names if paths.is_bridge or name != "MPU"]
    return [*given, ("MPU", False)]


def _handed(context: Context, paths: Paths, shape: Shape, name: str, explicit: bool, *, first: bool = True) -> Result:
    try:
        made = paths.make(name, shape, first=first)
        model = gpt.build(paths, shape, made, collection=explicit)
        result = Result(checks={"layers without the two groups": (_wrong(paths, model, context.rank, shape), 0)})
        if shape.tp == shape.pp == 1 and explicit and paths.exact:
            gpt.step(model, shape, whole=False)
            result.checks["after a step"] = (_wrong(paths, model, context.rank, shape), 0)
        return result
    finally:
        paths.destroy()


def _wrong(paths: Paths, model: Any, rank: int, shape: Shape) -> float:
    """Layers whose attention has anything but a list of the two groups that were just made."""
    wanted = tables.expected(shape, rank)
    assert wanted is not None
    return float(sum(not _has(paths, layer, wanted) for layer in gpt.attentions(model)))


def _has(paths: Paths, layer: Any, wanted: tuple[list[int], list[int], list[int]]) -> bool:
    groups = layer.cp_group
    return (
        isinstance(groups, list)
        and [dist.get_process_group_ranks(group) for group in groups] == list(wanted[1:])
        and all(paths.is_fresh(group) for group in groups)
        and list(layer.cp_global_ranks) == wanted[0]
        and layer.cp_comm_type == TYPE
    )


def _again(context: Context, paths: Paths, shape: Shape, name: str) -> Result:
    """The second model of a process gets the second groups: the ranks are the same, the groups are not."""
    try:
        paths.make(name, shape)
    finally:
        paths.destroy()
    return _handed(context, paths, shape, name, name != "MPU", first=False)


def _mixed(context: Context, paths: Paths, shape: Shape, name: str) -> Result:
    """One layer flat, one hierarchical: each gets its own kind of group."""
    try:
        made = paths.make(name, shape)
        types = ["p2p", TYPE] * shape.pp
        try:
            model = gpt.build(paths, shape, made, collection=name != "MPU", cp_comm_type=types)
        except IndexError as error:
            raise Skip(f"this megatron-core cannot read a cp_comm_type per layer: {error}") from error
        wanted = tables.expected(shape, context.rank)
        assert wanted is not None
        flat, deep = gpt.attentions(model)
        return Result(
            checks={
                "the flat layer has no flat group": (float(not _is_flat(flat, wanted[0])), 0),
                "the other has not the two": (float(not _has(paths, deep, wanted)), 0),
            }
        )
    finally:
        paths.destroy()


def _off(context: Context, paths: Paths, shape: Shape, name: str) -> Result:
    """Plain p2p is left as it was."""
    try:
        made = paths.make(name, shape, on=False)
        model = gpt.build(paths, shape, made, collection=name != "MPU", on=False)
        wanted = tables.expected(shape, context.rank)
        assert wanted is not None
        wrong = sum(not _is_flat(layer, wanted[0]) for layer in gpt.attentions(model))
        return Result(checks={"layers without the flat group": (float(wrong), 0)})
    finally:
        paths.destroy()


def _is_flat(layer: Any, ranks: list[int]) -> bool:
    return isinstance(layer.cp_group, dist.ProcessGroup) and dist.get_process_group_ranks(layer.cp_group) == ranks


def _rebound(context: Context, paths: Paths, shape: Shape) -> Result:
    """Bridge moves a built model to other groups for evaluation: layers get both of those, or it refuses."""
    try:
        model = gpt.build(paths, shape, paths.make("decentralized", shape))
        second = paths.make_offset(shape)
        with paths.seen_attention():
            paths.rebinding().install_pg_collection(model, second.collection)
            wrong = _wrong(paths, model, context.rank, shape)
            old = sum(
                layer.cp_group[0] is not second.collection.hcp[0] for layer in gpt.attentions(model) if not wrong
            )
            second.collection.hcp = None
            try:
                paths.rebinding().install_pg_collection(model, second.collection)
                refused = False
            except ValueError:
                refused = True
        found = {
            "layers without the two groups": wrong,
            "layers with the first groups": old,
            "an empty collection was installed": not refused,
        }
        return Result(checks={what: (float(value), 0.0) for what, value in found.items()})
    finally:
        paths.destroy()
