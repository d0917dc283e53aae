"""Recipes that embed in forward: their forward and backward see group and policy, and nothing stays published."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any
from unittest import mock

import torch.distributed as dist
from torch import Tensor, nn

from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import VOCAB, sequence
from skillgen.evals.vision_frame_sharding.recipe import RECIPES, make
from skillgen.evals.vision_frame_sharding.towers import Tower

NOBODY = "nothing"
Ranks = list[int] | str


class _Enough(Exception):
    """The model was called; what the recipe does with its output is not what is judged."""


def cases(context: Context, family: Tower) -> Iterator[Case]:
    """Once per run: the recipes are the same for all families."""
    if not context.harness.in_forward or context.options.setdefault("recipes", family.name) != family.name:
        return
    context.harness.stands_in("recipes that embed in forward are driven with a model that notes what is published")
    for cp in context.cp_sizes():
        for kind in RECIPES:
            for name, options in (
                ("training", {}),
                ("validation", {"validate": True}),
                ("the model raises", {"broken": True}),
            ):
                yield Case("recipe", f"CP {cp}, {kind}, {name}", partial(publishes, context, cp, kind, **options))
        yield Case("recipe", f"CP {cp}, distillation, teacher on ranks of its own", partial(apart, context, cp))
    yield Case("recipe", "without a policy, nothing is switched on", partial(default, context))


class Noting(nn.Module):
    """Stand-in for a model: token logits, and notes of the ranks that are published when it runs."""

    supports = types.SimpleNamespace(mtp_enabled=False, supports_mtp_cp=False)

    def __init__(self, context: Context, *, broken: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB, VOCAB)
        self.context, self.broken = context, broken
        self.notes: list[Ranks] = []

    def note(self, *_: Any) -> None:
        self.notes.append(now_published(self.context))

    def forward(self, input_ids: Tensor) -> Any:
        """Token ids [batch, sequence] to logits."""
        self.note()
        if self.broken:
            raise _Enough
        logits = self.words(input_ids)
        if logits.requires_grad:
            logits.register_hook(self.note)
        return types.SimpleNamespace(logits=logits)


def now_published(context: Context) -> Ranks:
    """The ranks of the published group, if the policy that comes with it is on."""
    scope = context.harness.glue().published_scope()
    return dist.get_process_group_ranks(scope.group) if scope is not None and scope.config.enabled else NOBODY


def publishes(context: Context, cp: int, kind: str, *, validate: bool = False, broken: bool = False) -> Result:
    """One step; the calls of the model, the teacher and the loss's backward, and what is left at the end."""
    student, teacher = Noting(context, broken=broken), Noting(context)
    recipe, batch = prepared(context, cp, kind, student, teacher)
    if validate:
        recipe.loss_fn = stop_here
    with unsharded(context, kind), suppress(_Enough):
        if validate:
            recipe._run_validation_epoch([dict(batch)])
        else:
            recipe._forward_backward_step(0, dict(batch), loss_buffer=[], num_label_tokens=8, num_batches=1)
    whole = not (validate or broken)
    expected = {"model": (student, 2 if whole else 1), "teacher": (teacher, int(kind == "distillation"))}
    return judged(context, recipe, expected)


def apart(context: Context, cp: int) -> Result:
    """A teacher that has ranks of its own publishes there."""
    teacher = Noting(context)
    recipe, batch = prepared(context, cp, "distillation", Noting(context), teacher)
    recipe.kd_mesh_bridge = types.SimpleNamespace(move_to_device=dict)
    if not hasattr(recipe, "_teacher_forward_separate"):
        return Result({"releases without such a teacher": (0, 0)})
    module = context.harness.load(RECIPES["distillation"])
    with unsharded(context, "distillation"), mock.patch.object(module, "materialize_teacher_logits"):
        recipe._teacher_forward_separate(dict(batch))
    return judged(context, recipe, {"teacher": (teacher, 1)})


def judged(context: Context, recipe: Any, expected: dict[str, tuple[Noting, int]]) -> Result:
    """Every note is of this rank's CP group, there are as many as there should be, and nothing stays."""
    ranks = dist.get_process_group_ranks(recipe.device_mesh["cp"].get_group())
    checks = {"groups still published": (float(now_published(context) != NOBODY), 0.0)}
    for who, (model, count) in expected.items():
        checks[f"calls of the {who} that are missing"] = (abs(count - len(model.notes)), 0)
        checks[f"calls of the {who} without its group"] = (sum(note != ranks for note in model.notes), 0)
    return Result(checks)


def prepared(context: Context, cp: int, kind: str, student: Noting, teacher: Noting) -> tuple[Any, dict[str, Any]]:
    """A recipe with the policy on, and a batch of text."""
    teacher.eval().requires_grad_(False)
    recipe = make(context, student, cp=cp, kind=kind, teacher=teacher, enabled=True)
    recipe.cp_vision_frame_sharding = recipe.distributed_config.multimodal.vision.frame_sharding
    recipe.loss_fn = context.harness.load("components.loss.masked_ce").MaskedCrossEntropy()
    recipe.step_scheduler = types.SimpleNamespace(is_remote_logging_step=False)
    if kind == "distillation":
        recipe.kd_loss_fn = lambda logits, targets, *_, **__: (logits - targets).pow(2).mean()
        recipe.kd_ratio, recipe._offload_teacher_model = 0.5, False
        recipe._ce_loss_buffer, recipe._kd_loss_buffer = [], []
    ids, labels, _ = sequence([], SEED)
    return recipe, {"input_ids": ids, "labels": labels}


def stop_here(*_: Any, **__: Any) -> None:
    """A loss function that nobody needs."""
    raise _Enough


def unsharded(context: Context, kind: str) -> Any:
    """The sequence stays whole: attention over shards wants a GPU, and what is published does not depend on it."""

    class Whole:
        def __init__(self, model: Any, mesh: Any, batch: Any, **_: Any) -> None:
            del model, mesh, batch

        def shard(self, batch: dict[str, Any]) -> Any:
            return nullcontext, batch

    return mock.patch.object(context.harness.load(RECIPES[kind]), "ContextParallelSharder", Whole)


def default(context: Context) -> Result:
    """A configuration from before the patch leaves every recipe's step without a policy."""
    model = Noting(context)
    recipe, batch = prepared(context, context.cp_sizes()[0], "fine-tuning", model, Noting(context))
    recipe.cp_vision_frame_sharding = type(recipe.cp_vision_frame_sharding)()
    with unsharded(context, "fine-tuning"):
        recipe._forward_backward_step(0, dict(batch), loss_buffer=[], num_label_tokens=8, num_batches=1)
    return Result({"calls with an enabled policy": (sum(note != NOBODY for note in model.notes), 0)})
