"""Faults that are put into the vendored runtime on purpose: each must make a case fail."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from skillgen.evals.kernel.context import Context
from skillgen.evals.kernel.families import Family, Layout
from skillgen.evals.kernel.rules import in_order


def names() -> list[str]:
    """Every mutation, by the name that `--mutate` takes."""
    return [*FAULTS, "gather-before-projection"]


def apply(name: str, context: Context) -> None:
    """Break the target's runtime in this process."""
    if name == "gather-before-projection":
        context.hook_model = gather_before_projection
        return
    put(context.harness.runtime(), *FAULTS[name])


def put(runtime: Any, attributes: tuple[str, ...], fault: Callable[[Any], Any]) -> None:
    """Put a fault around functions of the runtime, wherever they are imported, and around methods of its forms."""
    for attribute in attributes:
        form, _, leaf = attribute.rpartition(".")
        if form:
            for owner in {vars(module)[form] for module in _modules(runtime) if form in vars(module)}:
                setattr(owner, leaf, fault(getattr(owner, leaf)))  # none where the patch does not use that form
        else:
            original = _defined(runtime, leaf)
            _replace(runtime, original, leaf, fault(original))


@contextmanager
def replaced(runtime: Any, name: str, value: Any) -> Iterator[None]:
    """`name` is `value` in every module of the runtime but the one that defines it."""
    before = {
        m: vars(m)[name] for m in _modules(runtime) if name in vars(m) and m.__name__ != f"{runtime.__name__}.plan"
    }
    for module in before:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, original in before.items():
            setattr(module, name, original)


def _modules(runtime: Any) -> list[Any]:
    return [m for n, m in sys.modules.items() if n == runtime.__name__ or n.startswith(runtime.__name__ + ".")]


def _defined(runtime: Any, name: str) -> Any:
    """The runtime's function of this name, and not its module of the same name."""
    found = (vars(module)[name] for module in _modules(runtime) if name in vars(module))
    return next(value for value in found if callable(value))


def _replace(runtime: Any, original: Any, name: str, value: Any) -> None:
    """In the runtime's modules, and in those of the target that have imported it from there."""
    package = runtime.__name__.partition(".")[0]
    for module in [m for n, m in sys.modules.items() if n.partition(".")[0] == package]:
        if vars(module).get(name) is original:
            setattr(module, name, value)


def _no_reduce(sum_over_ranks: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Backward keeps the gradient of one rank's sequence shard only."""
    return lambda contributions: contributions[0]


def _order(restore_order: Callable[..., Any]) -> Callable[..., Any]:
    """Gathered pieces stay in the order of the ranks."""
    return lambda pieces, order: list(pieces)


def _placeholder_leak(own_rows: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """The last rows are taken for this rank's own, which a placeholder's are where there is one."""
    return lambda levels, rows, surplus: [level[level.shape[0] - rows :] for level in levels]


def _cut_tubelet(take: Callable[..., Any]) -> Callable[..., Any]:
    """A share that starts within a video starts half a unit late: the unit at the cut is of two halves."""

    def shifted(form: Any, call: Any, share: Any, placeholders: Any) -> Any:
        if any(segment.start for segment in share):
            pixels = call[form.pixels]
            units = form.units(call)
            segment = next(segment for segment in share if segment.start)
            rows = units.runs[segment.run].patches
            half = rows if getattr(form, "tubelet", 1) > 1 else rows // 2
            call = {**call, form.pixels: pixels.roll(-half, dims=1 if pixels.ndim == 3 else 0)}
        return take(form, call, share, placeholders)

    return shifted


def _no_agree(agree: Callable[..., None]) -> Callable[..., None]:
    """Ranks go to the payload without asking each other."""
    return lambda *args, **kwargs: None


def _swap(reorder: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """The first two pieces of equal size change places: every shape is right."""

    def swapped(*args: Any) -> list[Tensor]:
        pieces = list(reorder(*args))
        pairs = ((i, j) for j in range(len(pieces)) for i in range(j) if len(pieces[i]) == len(pieces[j]) > 0)
        for i, j in [*pairs][:1]:
            pieces[i], pieces[j] = pieces[j], pieces[i]
        return pieces

    return swapped


def _count(make_plan: Callable[..., Any]) -> Callable[..., Any]:
    """Units are dealt by number, whatever their size."""
    module = sys.modules[make_plan.__module__]
    return lambda runs, ranks, *, alpha: in_order(module, runs, ranks, alpha=alpha, method="count")


def _frozen_reduce(is_trainable: Callable[..., bool]) -> Callable[..., bool]:
    """A frozen encoder takes part in backward."""
    return lambda modules, pixels: torch.is_grad_enabled()


def _local_backward(gather_rows: Callable[..., Any]) -> Callable[..., Any]:
    """Each rank decides by its own features whether it takes part in backward."""
    return lambda features, *args, trainable: gather_rows(
        features, *args, trainable=any(level.requires_grad for level in features)
    )


def _upcast(gather_rows: Callable[..., Any]) -> Callable[..., Any]:
    """Half precision travels as fp32."""
    return lambda features, *args, **options: [
        level.to(features[0].dtype) for level in gather_rows([level.float() for level in features], *args, **options)
    ]


def _digest(plan_digest: Callable[..., int]) -> Callable[..., int]:
    """Ranks compare how many rows they expect, not of which images."""
    return lambda name, units, *facts: plan_digest(sum(units.rows))


def _never_off(is_enabled: Callable[..., bool]) -> Callable[..., bool]:
    """The flag is obeyed where there is nothing to share."""
    return lambda flag, cp_size: bool(flag)


FAULTS: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "no-reduce": (("sum_over_ranks",), _no_reduce),
    "order": (("restore_order",), _order),
    "placeholder-leak": (("own_rows",), _placeholder_leak),
    "cut-tubelet": (("PackedPatches.take", "GridRows.take"), _cut_tubelet),
    "no-agree": (("agree",), _no_agree),
    "swap": (("restore_order",), _swap),
    "swap-gradient": (("to_rank_major",), _swap),
    "count": (("make_plan",), _count),
    "frozen-reduce": (("is_trainable",), _frozen_reduce),
    "local-backward": (("gather_rows",), _local_backward),
    "upcast": (("gather_rows",), _upcast),
    "digest": (("plan_digest",), _digest),
    "never-off": (("is_enabled",), _never_off),
}


def gather_before_projection(family: Family, model: nn.Module, layout: Layout) -> None:
    """The features that go into the projector travel, as in ports that gather too early; results stay as they are."""

    def travel(module: nn.Module, args: tuple[Any, ...]) -> None:
        features = args[0].detach()
        longest = torch.tensor([features.numel()], device=features.device)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX, group=layout.cp)
        mine = features.new_zeros(int(longest))
        mine[: features.numel()] = features.flatten()
        dist.all_gather_into_tensor(mine.new_empty(mine.numel() * layout.cp.size()), mine, group=layout.cp)

    family.projector(model).register_forward_pre_hook(travel)
