"""Drive the target's own recipes, configured as from YAML, up to the call that shards the sequence."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from torch import Tensor

from skillgen.evals.kernel.automodel import ALWAYS, UPSTREAM, AutomodelHarness
from skillgen.evals.kernel.context import Context
from skillgen.evals.kernel.measure import Traffic, collectives, patches_seen
from skillgen.evals.vision_frame_sharding.recipe_models import RecipeModel

RECIPES = {"fine-tuning": "recipes.vlm.finetune", "distillation": "recipes.vlm.kd"}
CLASSES = {"fine-tuning": "FinetuneRecipeForVLM", "distillation": "KnowledgeDistillationRecipeForVLM"}
SETUP = (
    "distributed_setup", "mesh_context", "distributed_config", "device_mesh", "moe_mesh", "pp_enabled",
    "pipeline_config", "moe_parallel_config", "activation_checkpointing",
)  # fmt: skip


@dataclass
class Embedded:
    """What the recipe handed on to be sharded, and what it took."""

    batch: dict[str, Any] = field(default_factory=dict)
    patches: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    exact: Tensor | None = None  # the embeddings, where the family rounds them to bf16, with nothing rounded

    @property
    def embeddings(self) -> Tensor:
        return self.batch["inputs_embeds"]


class _Reached(Exception):
    """The recipe came to the call at which it is stopped."""


def make(
    context: Context,
    model: Any,
    *,
    cp: int,
    tp: int = 1,
    kind: str = "fine-tuning",
    teacher: Any = None,
    **policy: Any,
) -> Any:
    """A recipe whose distributed part is set up as `setup()` does it, from a configuration with this policy.

    Without a policy the configuration says nothing of multimodal sharding, as before the patch.
    """
    harness = context.harness
    section: dict[str, Any] = {"strategy": "fsdp2", "cp_size": cp, "tp_size": tp}
    if policy:
        section["multimodal"] = {"vision": {"frame_sharding": {**always(harness), **policy}}}
    node = harness.load("components.config.loader").ConfigNode(
        {"distributed": section, "dist_env": {"timeout_minutes": (context.limit + 5) / 60}}
    )
    recipe_class = getattr(harness.load(RECIPES[kind]), CLASSES[kind])
    recipe = recipe_class.__new__(recipe_class)
    recipe.cfg = harness.load("recipes._typed_config").RecipeConfig(node)
    build = harness.load("recipes._dist_utils").create_distributed_setup_from_config
    with same_meshes(context, cp, tp):
        setup = build(recipe.cfg, world_size=context.world)
    for name, value in zip(SETUP, recipe._distributed_setup_attributes(setup), strict=True):
        setattr(recipe, name, value)
    recipe.dist_env = types.SimpleNamespace(device=context.device, world_size=context.world, is_main=context.rank == 0)
    recipe.model_parts = [model]
    if kind == "distillation":
        recipe.teacher_model = teacher or model
    return recipe


def always(harness: AutomodelHarness) -> dict[str, Any]:
    """Options with which every batch is sharded, of those that this release has."""
    known = (
        harness.load(UPSTREAM).CpVisionFrameShardingConfig
        if harness.in_forward
        else harness.glue().FrameShardingConfig
    )
    return {name: value for name, value in ALWAYS.items() if name in known.__dataclass_fields__}


@contextmanager
def same_meshes(context: Context, cp: int, tp: int) -> Iterator[None]:
    """Recipes of one shape get the meshes that the first of them made."""
    module = context.harness.load("components.distributed.mesh_utils")
    create = module._create_device_meshes

    def once(*args: Any, **kwargs: Any) -> Any:
        if ("meshes", cp, tp) not in context.kept:
            context.kept["meshes", cp, tp] = create(*args, **kwargs)
        return context.kept["meshes", cp, tp]

    with mock.patch.object(module, "_create_device_meshes", once):
        yield


@contextmanager
def stopped(context: Context, kind: str) -> Iterator[dict[str, Any]]:
    """Within the block the recipe's step ends where it would shard the sequence; the batch that it had by then."""
    seen: dict[str, Any] = {}

    def stop(mesh: Any, batch: dict[str, Any], *_: Any, **__: Any) -> None:
        seen.update(batch)
        raise _Reached

    with mock.patch.object(context.harness.load(RECIPES[kind]), "make_cp_batch_and_ctx", stop):
        yield seen


def embed(
    context: Context,
    source: RecipeModel,
    recipe: Any,
    batch: dict[str, Any],
    *,
    kind: str = "fine-tuning",
    validate: bool = False,
) -> Embedded:
    """One step of training or validation."""
    model = recipe.model_parts[0].train()
    counted = patches_seen(source.family, source.tower_of(model))  # type: ignore[arg-type]
    with stopped(context, kind) as seen, collectives() as traffic, counted as patches:
        try:
            if validate:
                recipe._run_validation_epoch([dict(batch)])
            else:
                recipe._forward_backward_step(0, dict(batch), loss_buffer=[], num_label_tokens=1, num_batches=1)
        except _Reached:
            return Embedded(seen, sum(patches), traffic)
    raise RuntimeError("the recipe never came to make_cp_batch_and_ctx")


def differing(got: Tensor, want: Tensor) -> float:
    """How many integers are not the same."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise ValueError(f"{got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}")
    if got.is_floating_point():
        raise TypeError("only integers have to be the same to the bit")
    return float((got != want).sum())
