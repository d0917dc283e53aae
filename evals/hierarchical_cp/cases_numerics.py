"""Numerics in fp64, on the groups that the target made: parity with full attention, and controls that must miss it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from skillgen.evals.hierarchical_cp import gpt
from skillgen.evals.hierarchical_cp.families import Part
from skillgen.evals.hierarchical_cp.paths import Paths, paths_of
from skillgen.evals.kernel import tables, tolerances
from skillgen.evals.kernel.arms import apart
from skillgen.evals.kernel.attention import Groups, full, hierarchical
from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.kernel.stand_in import levels_of
from skillgen.evals.kernel.tables import Shape

GATE = tolerances.of(torch.float64)
HEADS, KV_HEADS, DIM, BATCH, CHUNK = 8, 4, 4, 2, 2
CONTROLS: dict[str, Callable[[Groups], Groups]] = {
    "no group: local attention": lambda groups: Groups(),
    "inner all-to-all only": lambda groups: Groups(inner=groups.inner),
    "no reorder after the all-to-all": lambda groups: replace(groups, reorder=False),
    "inner and outer swapped": lambda groups: Groups(inner=groups.outer, outer=groups.inner),
    "contiguous shards": lambda groups: groups,
}


def cases(context: Context, part: Part) -> Iterator[Case]:
    """For each split: parity on each path, the controls, and a step of a model with its own control."""
    paths = paths_of(context)
    for shape in splits(context.world):
        for name in paths.names:
            yield Case("numerics", f"{shape}, {name}", partial(_parity, context, paths, shape, name))
        case = f"{shape}, {len(CONTROLS)} controls must fail"
        yield Case("numerics", case, partial(_controls, context, paths, shape, paths.names[-1]))
    for shape in (shape for shape in splits(context.world) if shape.tp == shape.pp == 1):
        for name in paths.names:
            yield Case("numerics", f"{shape}, {name}, GPT step", partial(_step, paths, shape, name))
        case = f"{shape}, GPT step, control, CP off: must fail"
        yield Case("numerics", case, partial(_step_off, paths, shape))


def splits(world: int) -> list[Shape]:
    """One layout for each split of CP, the plainest."""
    plainest: dict[tuple[int, int], Shape] = {}
    for shape in tables.shapes(world):
        plainest.setdefault((shape.inner, shape.outer), shape)
    return list(plainest.values())


def errors(context: Context, shape: Shape, groups: Groups, *, zigzag: bool = True) -> dict[str, float]:
    """Largest differences of output and gradients between the shards and full attention."""
    seq = 2 * shape.cp * CHUNK
    generator = torch.Generator().manual_seed(11)

    def draw(heads: int) -> Tensor:
        return torch.randn(seq, BATCH, heads, DIM, dtype=torch.float64, generator=generator).to(context.device)

    inputs = [draw(HEADS), draw(KV_HEADS), draw(KV_HEADS)]
    grad = draw(HEADS)
    ranks = next(ranks for ranks in tables.cp_ranks(shape) if context.rank in ranks)
    index = ranks.index(context.rank)
    own = (
        tables.positions(index, shape.cp, CHUNK) if zigzag else list(range(2 * CHUNK * index, 2 * CHUNK * (index + 1)))
    )

    def arm(attention: Callable[..., Tensor], rows: list[int]) -> list[Tensor]:
        leaves = [x[rows].clone().requires_grad_() for x in inputs]
        out = attention(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, grad[rows])]

    wanted = arm(full, list(range(seq)))
    found = arm(lambda q, k, v: hierarchical(q, k, v, groups), own)
    pairs = zip(("out", "dq", "dk", "dv"), found, wanted, strict=True)
    return {name: apart([mine], [whole[own]]) for name, mine, whole in pairs}


def _parity(context: Context, paths: Paths, shape: Shape, name: str) -> Result:
    try:
        groups = _groups(paths, shape, name)
        return Result(checks={what: (error, GATE) for what, error in errors(context, shape, groups).items()})
    finally:
        paths.destroy()


def _controls(context: Context, paths: Paths, shape: Shape, name: str) -> Result:
    """Wrong implementations: the gate of the parity cases has to reject each."""
    result = Result()
    try:
        right = _groups(paths, shape, name)
        for control, wrong in CONTROLS.items():
            found = errors(context, shape, wrong(right), zigzag=control != "contiguous shards")
            for what, error in found.items():
                passed = not context.any(not error <= GATE)
                result.checks[f"{control}: {what} passed the gate"] = (float(passed), 0)
            result.numbers[control] = found
        return result
    finally:
        paths.destroy()


def _groups(paths: Paths, shape: Shape, name: str) -> Groups:
    """The levels that the target made, as its attention would use them."""
    made = paths.make(name, shape)
    groups = paths.stale() if name == "MPU" else made.collection.hcp
    if not groups:
        raise AssertionError("the target made no groups")
    return levels_of(groups, "a2a+p2p")


def _step(paths: Paths, shape: Shape, name: str) -> Result:
    """Loss and gradients of a GPT whose layers found their groups themselves, against the whole sequence."""
    _on_the_stand_in(paths)
    try:
        made = paths.make(name, shape)
        model = gpt.build(paths, shape, made, collection=name != "MPU")
        (loss, found), (whole, wanted) = (gpt.step(model, shape, whole=whole) for whole in (False, True))
        gap = gpt.relative(found, wanted)
        return Result(checks={"loss, relative": (abs(loss - whole) / whole, GATE), "gradients, relative": (gap, GATE)})
    finally:
        paths.destroy()


def _step_off(paths: Paths, shape: Shape) -> Result:
    """CP silently off: the loss hardly tells, the gradients do."""
    _on_the_stand_in(paths)
    try:
        model = gpt.build(paths, shape, paths.make("MPU", shape), collection=False)
        for layer in gpt.attentions(model):
            layer.set_context_parallel_group(None, None, None, layer.cp_comm_type)
        (loss, found), (whole, wanted) = (gpt.step(model, shape, whole=whole) for whole in (False, True))
        numbers: dict[str, Any] = {
            "loss": loss,
            "loss, whole": whole,
            "gradients, relative": gpt.relative(found, wanted),
        }
        passed = abs(loss - whole) / whole <= GATE or numbers["gradients, relative"] <= GATE
        return Result(checks={"the gate let it through": (float(passed), 0)}, numbers=numbers)
    finally:
        paths.destroy()


def _on_the_stand_in(paths: Paths) -> None:
    if not paths.exact:
        raise Skip("Transformer Engine computes no fp64: the probe and a comparison with flat p2p judge it")
