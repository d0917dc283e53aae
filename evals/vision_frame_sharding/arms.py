"""One call of a model's own method, its units sharded over a CP group or not: what it gave, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

from skillgen.evals.kernel.automodel import ALWAYS, UPSTREAM, cp_mesh
from skillgen.evals.kernel.context import SEED, Context
from skillgen.evals.kernel.families import settle_weights
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.kernel.measure import Traffic, collectives
from skillgen.evals.kernel.mutations import replaced
from skillgen.evals.vision_frame_sharding.towers import Tower, TowerBatch

_meshes: dict[Any, Any] = {}


@dataclass
class Call:
    """What one rank got and did; gradients are summed over the group."""

    features: list[Tensor]
    patches: list[int]  # of each call of the tower on this rank
    planned: list[Any] = field(default_factory=list)  # (runs, plan) of every plan that was made
    grads: dict[str, Tensor] = field(default_factory=dict)
    pixel_grads: list[Tensor] = field(default_factory=list)
    without_grad: int = 0  # trainable parameters that this rank left without gradient
    forward: Traffic = field(default_factory=Traffic)
    backward: Traffic = field(default_factory=Traffic)


def mesh_of(context: Context, cp: int) -> Any:
    """The mesh around this rank's CP group, made once per group."""
    group = context.layout(cp).cp
    if group not in _meshes:
        _meshes[group] = cp_mesh(context, cp)
    return _meshes[group]


@contextmanager
def published(context: Context, cp: int, *, over_tp: bool = False, **options: Any) -> Iterator[None]:
    """The CP group and a policy are published, or all ranks as one group of CP x TP with TP of 2."""
    harness = context.harness
    if over_tp:
        options["mesh_dims"] = ("cp", "tp")
    if not harness.in_forward:
        mesh = mesh_of(context, cp) if not over_tp else tp_mesh(context)
        with harness.published(mesh, **options):
            yield
        return
    upstream = harness.load(UPSTREAM)
    known = {field.name for field in fields(upstream.CpVisionFrameShardingConfig)}
    if missing := sorted(options.keys() - known):
        raise Skip(f"this release has no option {', '.join(missing)}")
    chosen = {name: value for name, value in {**ALWAYS, **options}.items() if name in known}
    policy = upstream.CpVisionFrameShardingConfig(**chosen)
    if over_tp and context.world >= 4:
        with harness.glue().publish(tp_mesh(context), policy):
            yield
        return
    group = context.layout(context.world if over_tp else cp).cp
    token = upstream.set_cp_vision_group(group, config=policy, spans_only_cp=not over_tp)
    try:
        yield
    finally:
        upstream.reset_cp_vision_group(token)


def tp_mesh(context: Context) -> Any:
    """A mesh of all ranks with TP of 2 within CP, made once; Skip where there are too few."""
    if context.world < 4:
        raise Skip("CP x TP needs 4 ranks")
    if "tp" not in _meshes:
        shape = (1, context.world // 2, 2)
        _meshes["tp"] = init_device_mesh(context.device.type, shape, mesh_dim_names=("dp", "cp", "tp"))
    return _meshes["tp"]


def build(context: Context, family: Tower, dtype: torch.dtype, *, freeze: bool = False, large: bool = False) -> Any:
    """A model with the run's weights, the same in all arms and on all ranks."""
    model = family.build(large=large)
    settle_weights(model, SEED)
    family.cast(model, dtype)
    return model.to(context.device).train().requires_grad_(not freeze)


def call(
    context: Context,
    family: Tower,
    model: Any,
    batch: TowerBatch,
    cp: int,
    *,
    sharded: bool,
    policy: dict[str, Any] | None = None,
    dtype: torch.dtype = torch.float64,
    recompute: bool = False,
    leaves: bool = True,
) -> Call:
    """Forward and backward. A rank's loss covers its shard of the rows only where units are sharded, else all of them.

    With `recompute` the whole call is checkpointed, so that backward calls the method again.
    """
    group = context.layout(cp).cp
    model.zero_grad(set_to_none=True)
    inputs, pixels = batch.moved(dtype, context.device, leaves=leaves)
    plans: list[Any] = []
    publishing = published(context, cp, **(policy or {})) if sharded else nullcontext()
    with publishing, planning(context, plans), patches_of(family, model) as patches:
        with collectives() as forward:
            if recompute:
                features = checkpoint(family.features, model, inputs, use_reentrant=False)
            else:
                features = family.features(model, inputs)
        found = Call([level.detach().clone() for level in features], [*patches], [*plans], forward=forward)
        if not (features and features[0].requires_grad):
            return found
        mine = [slice(group.rank(), None, group.size()) if sharded else slice(None)]
        with collectives() as found.backward:
            sum((level[tuple(mine)] * weights(level)[tuple(mine)]).sum() for level in features).backward()
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found.without_grad = sum(p.grad is None for p in trainable.values())
    tensors = [t.grad if t.grad is not None else torch.zeros_like(t) for t in [*trainable.values(), *pixels]]
    if sharded:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    found.grads = dict(zip(trainable, tensors, strict=False))
    found.pixel_grads = tensors[len(trainable) :] if leaves else []
    return found


def weights(level: Tensor) -> Tensor:
    """Seeded noise by which the loss weighs features, the same on every rank."""
    noise = torch.randn(level.shape, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    return noise.to(level.device, level.dtype)


@contextmanager
def patches_of(family: Tower, model: Any) -> Iterator[list[int]]:
    """Patch rows of each call of the tower."""
    seen: list[int] = []

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(family.patches(args, kwargs))

    handle = family.tower(model).register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


@contextmanager
def planning(context: Context, plans: list[Any]) -> Iterator[None]:
    """Note every plan that the runtime makes, with the runs that it is for."""
    runtime = context.harness.runtime()
    make = runtime.plan.make_plan

    def noted(runs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        plans.append((tuple(runs), make(runs, *args, **kwargs)))
        return plans[-1][1]

    with replaced(runtime, "make_plan", noted):
        yield


def checkpoint_tower(module: nn.Module) -> None:
    """Keep nothing of the tower for backward; it then runs again, whether or not a group is published."""
    inner: Callable[..., Any] = module.forward

    @wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(inner, *args, use_reentrant=False, **kwargs)

    module.forward = forward
