"""Faults that are put into a patched Automodel on purpose: each must make a case fail."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch.distributed as dist

from skillgen.evals.kernel import mutations
from skillgen.evals.kernel.automodel import AutomodelHarness
from skillgen.evals.kernel.context import Context
from skillgen.evals.kernel.harness import Skip

Fault = Callable[..., Any]


def _as_frames(units: Callable[..., Any]) -> Fault:
    """An item whose frames see each other is dealt out by frame."""
    return lambda form, *args: getattr(super(type(form), form), units.__name__)(*args)


def _own_threshold(is_small: Callable[..., bool]) -> Fault:
    """A rank of a higher number takes more batches for small ones."""
    return lambda units, *least: is_small(units, *(number * (1 + dist.get_rank()) for number in least))


RUNTIME: dict[str, list[tuple[tuple[str, ...], Fault]]] = {
    "frame-order": [mutations.FAULTS["order"]],
    "cut-entry": [
        (("GridItems.units", "GridItems.take"), _as_frames),
        (("GridRows.take",), mutations.FAULTS["cut-tubelet"][1]),
    ],
    "sum-dropped": [mutations.FAULTS["no-reduce"]],
    "threshold-per-rank": [(("is_small",), _own_threshold)],
    **{name: [mutations.FAULTS[name]] for name in ("swap", "swap-gradient", "placeholder-leak", "no-agree", "digest")},
}


def _left_published(publish: Callable[..., Any]) -> Fault:
    """What was published before comes back only where nothing was raised."""

    kept: list[Any] = []  # a generator that nobody holds is closed, and so would restore

    @contextmanager
    def leaking(*args: Any) -> Iterator[None]:
        manager = publish(*args)
        kept.append(manager)
        manager.__enter__()
        yield
        manager.__exit__(None, None, None)

    return leaking


def _group_not_restored(harness: AutomodelHarness) -> None:
    glue: Any = harness.glue()
    glue.publish = _left_published(glue.publish)


def _distillation_forgotten(harness: AutomodelHarness) -> None:
    """The distillation recipe publishes nothing, as upstream's does not."""
    recipe: Any = harness.load("recipes.vlm.kd")
    recipe.vision_frame_sharding = types.SimpleNamespace(publish=lambda *_: nullcontext())


def _embeddings_detached(harness: AutomodelHarness) -> None:
    """The sequence is sharded without autograd."""
    module: Any = harness.load("components.distributed.cp_utils")
    shard = module.shard_embeddings
    module.shard_embeddings = lambda tensor, mesh: shard(tensor, mesh).detach()


BEFORE_FORWARD: dict[str, Callable[[AutomodelHarness], None]] = {
    "group-not-restored": _group_not_restored,
    "distillation-forgotten": _distillation_forgotten,
    "embeddings-detached": _embeddings_detached,
}


def _in_forward_not_restored(harness: AutomodelHarness) -> None:
    recipe: Any = harness.load("recipes.vlm.finetune")
    recipe.reset_cp_vision_group = lambda token: None


def _in_forward_distillation_forgotten(harness: AutomodelHarness) -> None:
    recipe: Any = harness.load("recipes.vlm.kd").KnowledgeDistillationRecipeForVLM
    recipe._cp_vision_frame_sharding_context = lambda self: nullcontext()


IN_FORWARD: dict[str, Callable[[AutomodelHarness], None]] = {
    "group-not-restored": _in_forward_not_restored,
    "distillation-forgotten": _in_forward_distillation_forgotten,
}


def names() -> list[str]:
    """Every mutation, by the name that `--mutate` takes."""
    return [*RUNTIME, *BEFORE_FORWARD]


def apply(name: str, context: Context) -> None:
    """Break the patched code in this process."""
    if name in RUNTIME:
        for attributes, fault in RUNTIME[name]:
            mutations.put(context.harness.runtime(), attributes, fault)
        return
    faults = IN_FORWARD if context.harness.in_forward else BEFORE_FORWARD
    if name not in faults:
        raise Skip(f"{name} is about recipes that embed before forward")
    faults[name](context.harness)
