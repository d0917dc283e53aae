"""Checks of what replicas owe each other, after megatron-core's rules for gradient norms and checkpoints."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from skillgen.runtime.tp_dp import replicas
from tests.runtime.sharding import levels_of, objective
from tests.vision_tp_dp.toys import Place, Tower, all_trainable, batch_of, images, part, reference, shard


def is_counted(parameter: nn.Parameter, text: Any) -> bool:
    """megatron-core: not counted elsewhere, and cut over TP or on its first rank."""
    cut = getattr(parameter, "tp_dim", None) is not None
    return not getattr(parameter, "shared", False) and (cut or text.rank() == 0)


def check_start(rank: int, place: Place, tp: int) -> None:
    """Every replica starts as the first one, each with its own part; text TP ranks draw different random numbers."""
    made = place.vision(tp)
    tower = Tower(made.tp, seed=rank)
    tower.register_buffer("strided", torch.full((3, 4), float(rank))[:, ::2])
    replicas.broadcast_replicas(tower, made.replicas)
    first = rank if made.replicas is None else dist.get_process_group_ranks(made.replicas)[0]
    whole = Tower(seed=first)
    for name, theirs in whole.state_dict().items():
        ours = tower.state_dict()[name]
        dim = getattr(tower.get_parameter(name), "tp_dim", None) if name != "scale" else None
        assert torch.equal(ours, part(theirs, dim, made.tp)), name
    assert torch.equal(tower.strided, torch.full((3, 2), float(first)))
    dist.barrier()


def check_norm(rank: int, place: Place, tp: int) -> None:
    """Summed over the text TP ranks, the squares are those of the whole encoder."""
    made = place.vision(tp)
    whole, _ = reference(tuple(images(7)), all_trainable)
    tower, total = Tower(made.tp), torch.zeros((), dtype=torch.float64)
    replicas.mark_replicas(tower, made.replicas)
    for name, parameter in tower.named_parameters():
        if is_counted(parameter, place.text):
            total += part(whole.get_parameter(name).grad, getattr(parameter, "tp_dim", None), made.tp).square().sum()
    dist.all_reduce(total, group=place.text)
    expected = sum(float(p.grad.square().sum()) for p in whole.parameters())  # type: ignore[union-attr]
    assert math.isclose(float(total), expected)


def check_saved(rank: int, place: Place, tp: int) -> None:
    """Of every part of every parameter, one rank has the main replica, and no two have the same number."""
    made = place.vision(tp)
    entries: dict[str, Any] = {"layers": [], "step": 3}
    for name, parameter in Tower(made.tp).named_parameters():
        cut = getattr(parameter, "tp_dim", None) is not None
        ids = (0, 0 if cut else made.tp.rank(), place.cp_group.rank())
        entry = SimpleNamespace(key=(name, made.tp.rank() if cut else 0), replica_id=ids)
        if name.startswith("layers"):
            entries["layers"].append(entry)
        else:
            entries.setdefault("rest", {})[name] = entry
    replicas.offset_replica_ids(entries, made.replicas, tp)
    assert entries["step"] == 3
    mine = [(entry.key, entry.replica_id) for entry in (*entries["layers"], *entries["rest"].values())]
    everyone: list[Any] = [None] * place.world.size()
    dist.all_gather_object(everyone, mine, group=place.world)
    found = [pair for theirs in everyone for pair in theirs]
    assert len(set(found)) == len(found)
    assert set(Counter(key for key, ids in found if not any(ids)).values()) == {1}
    assert {key for key, _ in found} == {key for key, ids in found if not any(ids)}


class Model(nn.Module):
    """What a patched model looks like to `with_replica_sum`."""

    def __init__(self, tower: Tower | None, made: Any) -> None:
        super().__init__()
        self.vision_model, self.vision_groups = tower, made


class Wrapper(nn.Module):
    """A wrapper as Float16Module, or DistributedDataParallel, whose attributes are the model's where it has none."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return (
            super().__getattr__(name)
            if name in ("module", "_modules")
            else getattr(super().__getattr__("module"), name)
        )


def check_step(rank: int, place: Place, tp: int, main_grad: bool = True) -> None:
    """A step's gradients: of two microbatches, summed over CP by the original, then over the replicas, and scaled."""
    made = place.vision(tp)
    tower, grids = Tower(made.tp), (tuple(images(5)), tuple(images(9)))
    model = Wrapper(Wrapper(Model(tower, made)))
    wanted = {name: sum_of(name, grids) / 8 for name, _ in tower.named_parameters()}
    for microbatch in grids:
        output = shard(tower, made)(**batch_of(microbatch))
        objective(output, rank=place.cp_group.rank(), ranks=place.cp).backward()
    for parameter in tower.parameters():
        if main_grad:
            parameter.main_grad, parameter.grad = parameter.grad, None  # type: ignore[attr-defined]

    def finalize(model: list[nn.Module], num_tokens: int | None = None) -> str:
        for chunk in model:
            for parameter in chunk.parameters():
                grad = parameter.main_grad if main_grad else parameter.grad
                dist.all_reduce(grad, group=place.cp_group)
                grad /= num_tokens or 1  # type: ignore[operator]
        return "what it gives"

    assert replicas.with_replica_sum(finalize)([model], num_tokens=8) == "what it gives"
    for name, parameter in tower.named_parameters():
        grad: Tensor = parameter.main_grad if main_grad else parameter.grad  # type: ignore[assignment]
        expected = part(wanted[name], getattr(parameter, "tp_dim", None), made.tp)
        torch.testing.assert_close(grad, expected, msg=lambda m, name=name: f"gradient of {name}: {m}")


def sum_of(name: str, batches: Any) -> Tensor:
    """A parameter's gradient of several microbatches."""
    grads = [reference(grids, all_trainable)[0].get_parameter(name).grad for grids in batches]
    return torch.stack(grads).sum(0)  # type: ignore[arg-type]


def check_one_encoder(rank: int, place: Place) -> None:
    """Every image is encoded by the weights of the first replica, whichever rank encodes it."""
    made = place.vision(1)
    tower = Tower(made.tp, seed=rank)
    replicas.broadcast_replicas(tower, made.replicas)
    whole = Tower(seed=dist.get_process_group_ranks(place.text)[0])
    expected = levels_of(whole(**batch_of(images(7))))
    for ours, theirs in zip(levels_of(shard(tower, made)(**batch_of(images(7)))), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def parameters(*grads: Tensor) -> Any:
    """A module with parameters p0, p1, ... of these gradients."""
    module = nn.Module()
    for index, grad in enumerate(grads):
        parameter = nn.Parameter(torch.empty_like(grad))
        parameter.grad = grad
        module.register_parameter(f"p{index}", parameter)
    return module


def check_half(rank: int) -> None:
    """256 + 3 / 2 is 256 where bfloat16 rounds at every step, in whatever order, for one of the numbers at least."""
    numbers = torch.full((dist.get_world_size(),), 0.5, dtype=torch.bfloat16)
    numbers[rank] = 256
    module = parameters(numbers)
    replicas.sum_replica_gradients(module, dist.group.WORLD)
    assert module.p0.grad.tolist() == [258] * 4
