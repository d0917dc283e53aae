"""Whole training steps of the 0.5.0 recipe: which gradients reach tower and token embeddings, and whether right."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.agreement import must_raise
from skillgen.evals.kernel.arms import apart_by_name
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import VOCAB, Item, settle_weights
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.vision_frame_sharding.recipe import make
from skillgen.evals.vision_frame_sharding.recipe_models import MODELS, RecipeModel
from skillgen.evals.vision_frame_sharding.towers import HIDDEN, Tower

# The target rotates queries in fp32: replicated, every rank rounds its part of a gradient there; sharded, the owner
# rounds their sum once, as a rank does that is alone.
PART = {"on": None, "off": torch.float32}
SHARD = "shard_embeddings"  # in cp_utils, where the patch was made with --trainable


def cases(context: Context, family: Tower) -> Iterator[Case]:
    """With --trainable all gradients are there and right; without it none is, as the target has it."""
    if context.harness.in_forward or family.name not in MODELS:
        return
    source = MODELS[family.name](family)
    if family.part:
        return
    context.harness.stands_in(f"{family.name}: in trainable cases, language model replaced by a position-wise stub")
    trainable = hasattr(context.harness.load("components.distributed.cp_utils"), SHARD)
    for cp in context.cp_sizes():
        for name, items in source.batches.items():
            if trainable:
                yield Case("trainable", f"CP {cp}, {name}", partial(gradients, context, source, cp, items))
            else:
                told = f"CP {cp}, {name}, without --trainable: no gradient"
                yield Case("trainable", told, partial(none, context, source, cp, items))
    if trainable:
        cp, items = context.cp_sizes()[0], next(iter(source.batches.values()))
        yield Case("trainable", f"CP {cp} x TP 2 is refused", partial(over_tp, context, source, cp, items))


class PositionWise(nn.Module):
    """The target's model up to its embeddings; then a stand-in whose positions do not see each other."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.prepare_model_inputs_for_cp = model.prepare_model_inputs_for_cp
        self.up, self.head = nn.Linear(HIDDEN, 2 * HIDDEN), nn.Linear(2 * HIDDEN, VOCAB)
        settle_weights(nn.ModuleList([self.up, self.head]), SEED + 1)

    def forward(self, *, inputs_embeds: Tensor | None = None, position_ids: Any = None, **batch: Any) -> Any:
        """Embeddings of a batch with `_pre_embed_only`; else logits [batch, local sequence, vocabulary]."""
        del position_ids
        if inputs_embeds is None:
            return self.model(**batch)
        return types.SimpleNamespace(logits=self.head(F.gelu(self.up(inputs_embeds))))


def step(
    context: Context, source: RecipeModel, cp: int, batch: dict[str, Any], *, tp: int = 1, **policy: Any
) -> tuple[Any, float]:
    """One `_forward_backward_step`, from pixels to gradients; the model and this rank's part of the loss."""
    model = PositionWise(source.model(SEED)).double()
    recipe = make(context, model, cp=cp, tp=tp, **policy)
    recipe.loss_fn = loss_function(context)
    recipe.step_scheduler = types.SimpleNamespace(is_remote_logging_step=False)
    losses: list[Tensor] = []
    batch = {name: value.clone() for name, value in batch.items()}  # context parallelism cuts its buffers in place
    recipe._forward_backward_step(
        0, batch, loss_buffer=losses, num_label_tokens=labelled(batch), num_batches=1, is_train=True
    )
    return model, float(losses[0])


def alone(context: Context, source: RecipeModel, batch: dict[str, Any]) -> tuple[Any, float]:
    """The same on this rank alone: nothing is sharded, neither units nor sequence."""
    model = PositionWise(source.model(SEED)).double()
    media = {name: value for name, value in batch.items() if name != "labels"}
    logits = model(**model(_pre_embed_only=True, **media)).logits
    loss = loss_function(context)(logits, batch["labels"], num_label_tokens=labelled(batch))
    loss.backward()
    return model, float(loss.detach())


def loss_function(context: Context) -> Any:
    """The target's own, in the precision of the logits."""
    return context.harness.load("components.loss.masked_ce").MaskedCrossEntropy(fp32_upcast=False)


def labelled(batch: dict[str, Any]) -> int:
    """Positions that count."""
    return int((batch["labels"] != -100).sum())


def trained(source: RecipeModel, model: PositionWise) -> dict[str, nn.Parameter]:
    """Parameters of the tower, what projects its features, and the token embedding."""
    skip = ("layers.", "norm.", "lm_head.", "mtp.")  # the language model, of which the stub stands in
    names = {name: p for name, p in model.model.named_parameters() if not any(part in name for part in skip)}
    tower = source.family.tower(source.tower_of(model.model))
    vision = {id(p) for p in tower.parameters()}
    return {name: p for name, p in model.model.named_parameters() if name in names or id(p) in vision}


def gradients(context: Context, source: RecipeModel, cp: int, items: Sequence[Item]) -> Result:
    """Summed over the CP group they are those of a rank that is alone, with the policy on and off."""
    batch = source.batch(items, SEED)
    reference, loss = alone(context, source, batch)
    wanted = {name: p.grad for name, p in trained(source, reference).items() if p.grad is not None}
    checks: dict[str, tuple[float, float]] = {"embedding and vision gradients": (float(not wanted), 0)}
    for arm, policy in (("off", {"enabled": False}), ("on", {"enabled": True})):
        model, part = step(context, source, cp, batch, **policy)
        group = context.layout(cp).cp
        got = {}
        missing = 0
        for name, parameter in trained(source, model).items():
            if name not in wanted:
                continue
            missing += parameter.grad is None
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(grad, group=group)
            got[name] = grad / context.world  # the recipe scales for the mean that FSDP takes over all ranks
        total = torch.tensor(part, dtype=torch.float64)
        dist.all_reduce(total, group=group)
        checks[f"gradients, {arm}"] = (apart_by_name(got, wanted), tolerances.of(torch.float64, PART[arm]))
        checks[f"loss, {arm}"] = (abs(float(total) - loss) / loss, tolerances.of(torch.float64))
        checks[f"parameters without gradient, {arm}"] = (missing, 0)
    return Result(checks, {"parameters": len(wanted)})


def over_tp(context: Context, source: RecipeModel, cp: int, items: Sequence[Item]) -> Result:
    """Tensor-parallel ranks hold the same sequence shard: a sum over them would count its gradient twice."""
    if context.world < 2 * cp:
        raise Skip(f"CP {cp} x TP 2 needs {2 * cp} ranks")
    batch, policy = source.batch(items, SEED), {"enabled": True, "mesh_dims": ["cp", "tp"]}
    return must_raise(context, lambda: step(context, source, cp, batch, tp=2, **policy), ["ValueError", "frozen"])


def none(context: Context, source: RecipeModel, cp: int, items: Sequence[Item]) -> Result:
    """The step trains the language model; what stands before it is embedded without gradient."""
    model, _ = step(context, source, cp, source.batch(items, SEED), enabled=True)
    parameters = trained(source, model)
    return Result(
        {
            "vision and embedding parameters with gradient": (sum(p.grad is not None for p in parameters.values()), 0),
            "language model without gradient": (float(model.head.weight.grad is None), 0),
            "no such parameters": (float(not parameters), 0),
        },
        {"parameters": len(parameters)},
    )
