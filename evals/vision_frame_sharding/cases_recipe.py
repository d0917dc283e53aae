"""The recipes of 0.5.0: with the policy on they hand on the same embeddings, and each rank encodes its part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.arms import InDouble, apart
from skillgen.evals.kernel.context import SEED, Case, Context, Result
from skillgen.evals.kernel.families import Item
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.vision_frame_sharding import cases_publish
from skillgen.evals.vision_frame_sharding.recipe import Embedded, differing, embed, make
from skillgen.evals.vision_frame_sharding.recipe_models import MODELS, RecipeModel
from skillgen.evals.vision_frame_sharding.towers import Tower

LEAST = 150  # patch rows, more than a rank has of any batch here
SWITCHED_ON: dict[str, Any] = {"enabled": True}
ROLES = (("fine-tuning", False), ("fine-tuning", True), ("distillation", False), ("distillation", True))


def cases(context: Context, family: Tower) -> Iterator[Case]:
    """Every recipe case of one family of 0.5.0; where the target embeds in forward, of the recipes alone."""
    if context.harness.in_forward or family.name not in MODELS:
        yield from cases_publish.cases(context, family)
        return
    source = MODELS[family.name](family)
    for cp in context.cp_sizes():
        for name, items in source.batches.items():
            yield Case("recipe", f"CP {cp}, {name}", partial(both, context, source, cp, items))
        items = next(iter(source.batches.values()))
        for kind, validate in ROLES[1:]:
            name = f"CP {cp}, {kind}, {'validation' if validate else 'training'}"
            yield Case("recipe", name, partial(both, context, source, cp, items, kind=kind, validate=validate))
        yield Case("recipe", f"CP {cp}, the tower raises on one rank", partial(raises, context, source, cp, items))
        yield Case("recipe", f"CP {cp}, below both thresholds", partial(small, context, source, cp, items))
        yield Case("recipe", f"CP {cp}, a least of work", partial(least, context, source, cp, items))
        yield Case("recipe", f"CP {cp}, enabled: false", partial(off, context, source, cp, items))
    cp = context.cp_sizes()[0]
    yield Case("recipe", f"CP {cp} x TP 2, frozen", partial(over_tp, context, source, cp, items))
    if source.whole:
        yield Case("recipe", "options from the configuration", partial(options, context))


def both(
    context: Context,
    source: RecipeModel,
    cp: int,
    items: Sequence[Item],
    *,
    kind: str = "fine-tuning",
    validate: bool = False,
    tp: int = 1,
    freeze: bool = False,
    **policy: Any,
) -> Result:
    """The step with a configuration from before the patch, and with the policy on."""
    batch = source.batch(items, SEED)
    replicated = plain(context, source, cp, batch, kind=kind, validate=validate, tp=tp, freeze=freeze)
    model = source.model(SEED).requires_grad_(not freeze)
    recipe = make(context, model, cp=cp, tp=tp, kind=kind, **SWITCHED_ON, **policy)
    sharded = embed(context, source, recipe, batch, kind=kind, validate=validate)
    checks = same(source, sharded, replicated)
    checks["patch rows, share of the replicated"] = (
        sharded.patches / replicated.patches,
        share(source, items, cp * tp),
    )
    checks["collectives of the replicated arm"] = (len(replicated.traffic.calls), 0)
    checks["groups still published"] = (published(context), 0)
    return Result(checks, {"patch rows, replicated": replicated.patches, "patch rows, sharded": sharded.patches})


def same(source: RecipeModel, got: Embedded, want: Embedded) -> dict[str, tuple[float, float]]:
    """Embeddings within rounding, positions to the bit."""
    if want.exact is not None:
        limit, wanted = tolerances.twice(apart([want.embeddings], [want.exact])), want.exact
    else:
        limit, wanted = tolerances.of(torch.float64, source.family.part), want.embeddings
    checks = {"embeddings": (apart([got.embeddings], [wanted]), limit)}
    if "position_ids" in want.batch:
        checks["position ids that differ"] = (differing(got.batch["position_ids"], want.batch["position_ids"]), 0)
    return checks


def plain(
    context: Context,
    source: RecipeModel,
    cp: int,
    batch: dict[str, Any],
    *,
    kind: str = "fine-tuning",
    validate: bool = False,
    tp: int = 1,
    freeze: bool = False,
) -> Embedded:
    """The step with a configuration from before the patch; for a family that rounds to bf16 also what it rounds."""

    def run(model: Any) -> Embedded:
        recipe = make(context, model.requires_grad_(not freeze), cp=cp, tp=tp, kind=kind)
        return embed(context, source, recipe, batch, kind=kind, validate=validate)

    found = run(source.model(SEED))
    if source.family.part is torch.bfloat16:
        with InDouble():
            found.exact = run(source.model(SEED).double()).embeddings
    return found


def share(source: RecipeModel, items: Sequence[Item], ranks: int) -> float:
    """What a rank may encode of a batch's patch rows: its part, and as much again as evens out unequal units."""
    calls = [[unit.patches for unit in call] for call in source.family.batch(items, SEED).calls]
    most = 0.0
    for units in calls:
        even = len(set(units)) == 1 and len(units) % ranks == 0
        most += max(sum(units) / ranks + (0 if even else max(units)), max(units))
    return most / sum(map(sum, calls))


def published(context: Context) -> float:
    """1 where a group is left published."""
    return float(context.harness.group() is not None)


def raises(context: Context, source: RecipeModel, cp: int, items: Sequence[Item]) -> Result:
    """One rank's tower fails: every rank says so, nothing stays published, and the next step is as if nothing was."""
    batch, reason = source.batch(items, SEED), "no memory left on this rank"
    want = plain(context, source, cp, batch)
    recipe = make(context, source.model(SEED), cp=cp, **SWITCHED_ON)
    culprit = dist.get_process_group_ranks(recipe.device_mesh["cp"].get_group())[-1]

    def fail(*_: object) -> None:
        raise RuntimeError(reason)

    tower = source.family.tower(source.tower_of(recipe.model_parts[0]))
    hook = tower.register_forward_pre_hook(fail) if context.rank == culprit else None
    message = ""
    try:
        embed(context, source, recipe, batch)
    except Exception as error:  # what it says is what is judged
        message = f"{type(error).__name__}: {error}"
    left = published(context)
    if hook is not None:
        hook.remove()
    checks = same(source, embed(context, source, recipe, batch), want)
    checks["ranks that did not raise"] = (float(not message), 0)
    checks["reasons missing from the message"] = (sum(part not in message for part in (f"rank {culprit}", reason)), 0)
    checks["groups still published"] = (left, 0)
    return Result(checks, {"message": message[:400]})


def small(context: Context, source: RecipeModel, cp: int, items: Sequence[Item]) -> Result:
    """A batch below both thresholds is encoded on every rank; one that reaches either is not."""
    batch = source.batch(items, SEED)
    units = [unit for call in source.family.batch(items, SEED).calls for unit in call]
    rows = sum(unit.rows for unit in units)
    want = plain(context, source, cp, batch)
    checks: dict[str, tuple[float, float]] = {}
    for name, tokens, frames, expected in (
        ("below both", rows + 1, len(units) + 1, True),
        ("tokens reached", rows, len(units) + 1, False),
        ("frames reached", rows + 1, len(units), False),
    ):
        policy: dict[str, Any] = {"enabled": True, "min_tokens": tokens, "min_frames": frames}
        got = embed(context, source, make(context, source.model(SEED), cp=cp, **policy), batch)
        checks |= {f"{what}, {name}": check for what, check in same(source, got, want).items()}
        checks[f"ranks that decided otherwise, {name}"] = (float((got.patches == want.patches) != expected), 0)
    return Result(checks)


def least(context: Context, source: RecipeModel, cp: int, items: Sequence[Item]) -> Result:
    """A rank that owns units encodes as many patch rows as the policy asks for, and what it adds leaves no trace."""
    batch = source.batch(items, SEED)
    want = plain(context, source, cp, batch)
    got = embed(
        context, source, make(context, source.model(SEED), cp=cp, enabled=True, min_local_patch_rows=LEAST), batch
    )
    return Result({**same(source, got, want), "patch rows that are missing": (max(LEAST - got.patches, 0), 0)})


def off(context: Context, source: RecipeModel, cp: int, items: Sequence[Item]) -> Result:
    """A policy that says false: no collective, every rank encodes everything."""
    batch = source.batch(items, SEED)
    want = plain(context, source, cp, batch)
    got = embed(context, source, make(context, source.model(SEED), cp=cp, enabled=False), batch)
    checks = same(source, got, want)
    checks["collectives"] = (len(got.traffic.calls), 0)
    checks["patch rows that are missing"] = (want.patches - got.patches, 0)
    return Result(checks)


def over_tp(context: Context, source: RecipeModel, cp: int, items: Sequence[Item]) -> Result:
    """A tower without gradient may be sharded over tensor-parallel ranks as well."""
    if context.world < 2 * cp:
        raise Skip(f"CP {cp} x TP 2 needs {2 * cp} ranks")
    return both(context, source, cp, items, tp=2, freeze=True, mesh_dims=["cp", "tp"])


REFUSED: dict[str, Any] = {
    "enabled": "yes",
    "mesh_dims": ["dp"],
    "min_tokens": -1,
    "min_frames": 1.5,
    "min_local_patch_rows": True,
    "cost_alpha": "large",
}


def options(context: Context) -> Result:
    """Every option arrives at the policy; a value that it cannot have is refused under its dotted name."""
    parse = context.harness.load("recipes._dist_utils").parse_distributed_section
    given = {"enabled": True, "mesh_dims": ["cp", "tp"], "min_tokens": 7, "min_frames": 3}
    given |= {"min_local_patch_rows": 5, "cost_alpha": 11}

    def read(policy: dict[str, Any]) -> Any:
        section = {"strategy": "fsdp2", "multimodal": {"vision": {"frame_sharding": policy}}}
        return parse(section)["strategy_config"].multimodal.vision.frame_sharding

    got = read(given)
    wrong = [
        name
        for name, value in given.items()
        if getattr(got, name) != (tuple(value) if isinstance(value, list) else value)
    ]
    accepted = []
    for name, value in REFUSED.items():
        try:
            read({name: value})
        except (TypeError, ValueError) as error:
            if f"distributed.multimodal.vision.frame_sharding.{name}" in str(error):
                continue
        accepted.append(name)
    default = parse({"strategy": "fsdp2"})["strategy_config"].multimodal.vision.frame_sharding
    return Result(
        {
            "options that did not arrive": (len(wrong), 0),
            "values that were not refused by name": (len(accepted), 0),
            "on without being asked": (float(default.enabled), 0),
        },
        {"wrong": wrong, "accepted": accepted},
    )
