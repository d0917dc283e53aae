"""Grouped heads on the dense fallback of block-diagonal attention, against every document by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from skillgen.evals.blockdiag_gqa.attention import BLOCKDIAG, QUERIES, Attention, Packed
from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.arms import apart, apart_by_name
from skillgen.evals.kernel.automodel import cp_mesh
from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.kernel.harness import Skip

ATTENTION = "cp_blockdiag_sdpa"
LIMIT = tolerances.of(torch.float32)  # the target normalises queries and keys in fp32 whatever it is given


@dataclass
class Outcome:
    """Outputs and gradients over the whole sequence, summed over the ranks that share it."""

    rows: Tensor
    inputs: Tensor
    weights: dict[str, Tensor]


def crash(context: Context, family: Attention) -> Iterator[Case]:
    """Without the patch's argument the target fails on every rank: the defect is still there to be repaired."""
    for cp in context.cp_sizes()[:1]:

        def run(cp: int = cp) -> Result:
            with _replaced(family, lambda attend: lambda *args, enable_gqa=False, **rest: attend(*args, **rest)):
                try:
                    _sharded(context, family, family.build(2, torch.float32), cp, torch.float32)
                except RuntimeError as error:
                    return Result({"ranks that go on": (0.0, 0.0)}, {"message": str(error)[:120]})
            return Result({"ranks that go on": (1.0, 0.0)})

        yield Case("crash", f"CP {cp}, {QUERIES} query heads on 2, not told", run)


def parity(context: Context, family: Attention) -> Iterator[Case]:
    """Outputs and gradients of the patched code, for each way to group the heads."""
    for cp in context.cp_sizes():
        for heads in (1, 2, QUERIES):
            yield Case("parity", f"CP {cp}, {QUERIES} query heads on {heads}", _parity(context, family, cp, heads))
        yield Case("parity", f"CP {cp}, {QUERIES} query heads on 2, bf16", _half(context, family, cp))


def _parity(context: Context, family: Attention, cp: int, heads: int) -> Callable[[], Result]:
    def run() -> Result:
        module = family.build(heads, torch.float32)
        got = _sharded(context, family, module, cp, torch.float32)
        want = _alone(module, family.packed(cp, torch.float32))
        checks = {f"{what}, documents by themselves": (value, LIMIT) for what, value in _apart(got, want).items()}
        same = _sharded(context, family, family.repeated(module, heads), cp, torch.float32)
        same.weights = {name: _regrouped(name, grad, heads) for name, grad in same.weights.items()}
        checks |= {f"{what}, repeated heads": (value, LIMIT) for what, value in _apart(got, same).items()}
        return Result(checks)

    return run


def _half(context: Context, family: Attention, cp: int) -> Callable[[], Result]:
    """In bf16 without the varlen kernels; the error may be twice that of the documents by themselves."""

    def run() -> Result:
        kernels = family.harness.load(f"{BLOCKDIAG}.kernels")
        if kernels.HAS_FLASH_VARLEN:
            raise Skip("flash_attn is there, so bf16 does not fall back")
        exact = _alone(family.build(2, torch.float32), family.packed(cp, torch.float32))
        module = family.build(2, torch.bfloat16)
        got = _apart(_sharded(context, family, module, cp, torch.bfloat16), exact)
        usual = _apart(_alone(module, family.packed(cp, torch.bfloat16)), exact)
        return Result({what: (got[what], tolerances.twice(usual[what])) for what in got})

    return run


def _sharded(context: Context, family: Attention, module: nn.Module, cp: int, dtype: torch.dtype) -> Outcome:
    """Forward and backward of this rank's rows, in the target's own context."""
    packed = family.packed(cp, dtype)
    mesh = cp_mesh(context, cp)["cp"]
    module.zero_grad(set_to_none=True)
    inputs = packed.inputs.clone().requires_grad_()
    with family.sharded(mesh, packed) as mine:
        rows = module(inputs[:, mine], freqs_cis=packed.tables[:, mine])
        (rows * packed.weights[:, mine]).sum().backward()
    whole = torch.zeros_like(packed.inputs)
    whole[:, mine] = rows.detach()
    return _summed(whole * (packed.weights != 0), inputs, module, mesh.get_group())


def _alone(module: nn.Module, packed: Packed) -> Outcome:
    """Every document by itself, on the target's usual attention."""
    module.zero_grad(set_to_none=True)
    inputs = packed.inputs.clone().requires_grad_()
    whole = torch.zeros_like(packed.inputs)
    for document in packed.documents():
        rows = module(inputs[:, document], freqs_cis=packed.tables[:, document])
        (rows * packed.weights[:, document]).sum().backward()
        whole[:, document] = rows.detach()
    return _summed(whole, inputs, module, None)


def _summed(rows: Tensor, inputs: Tensor, module: nn.Module, group: Any) -> Outcome:
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    assert inputs.grad is not None
    tensors = [rows, inputs.grad, *grads.values()]
    whole = [tensor.float() if tensor.dtype is torch.bfloat16 else tensor.clone() for tensor in tensors]
    for tensor in whole if group is not None else ():
        dist.all_reduce(tensor, group=group)
    return Outcome(whole[0], whole[1], dict(zip(grads, whole[2:], strict=True)))


def _apart(got: Outcome, want: Outcome) -> dict[str, float]:
    return {
        "outputs": apart([got.rows], [want.rows]),
        "input gradients": apart([got.inputs], [want.inputs]),
        "parameter gradients": apart_by_name(got.weights, want.weights),
    }


def _regrouped(name: str, grad: Tensor, heads: int) -> Tensor:
    """The gradient of repeated key and value heads, summed over the copies of each."""
    if not name.startswith(("k_proj", "v_proj")):
        return grad
    return grad.view(heads, QUERIES // heads, -1, grad.shape[-1]).sum(1).reshape(-1, grad.shape[-1])


@contextmanager
def _replaced(family: Attention, change: Callable[[Any], Any]) -> Iterator[None]:
    """While entered, the model's dispatch calls something else."""
    attend = getattr(family.blockdiag, ATTENTION)
    setattr(family.blockdiag, ATTENTION, change(attend))
    try:
        yield
    finally:
        setattr(family.blockdiag, ATTENTION, attend)


def _told_nothing(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda query, key, value, enable_gqa=False, **rest: attend(query, key, value, **rest)


def _other_order(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Query heads meet key and value heads in turn, not in blocks."""

    def wrong(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool = False, **rest: Any) -> Tensor:
        times = query.shape[1] // key.shape[1]
        return attend(query, key.repeat(1, times, 1, 1), value.repeat(1, times, 1, 1), **rest)

    return wrong


def _first_copy_learns(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of the copies of a value head only the first passes its gradient on."""

    def wrong(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool = False, **rest: Any) -> Tensor:
        times = query.shape[1] // key.shape[1]
        copies = torch.stack([value, *[value.detach()] * (times - 1)], 2).flatten(1, 2)
        return attend(query, key.repeat_interleave(times, 1), copies, **rest)

    return wrong


FAULTS = {"told-nothing": _told_nothing, "other-order": _other_order, "first-copy-learns": _first_copy_learns}


def mutate(name: str, context: Context) -> None:
    """Break the attention that the model's dispatch calls."""
    if name not in FAULTS:
        raise ValueError(f"no mutation is called {name!r}: it is one of {', '.join(FAULTS)}")
    package = context.harness.load(BLOCKDIAG)
    setattr(package, ATTENTION, FAULTS[name](getattr(package, ATTENTION)))
