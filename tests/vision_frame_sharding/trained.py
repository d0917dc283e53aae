"""Run in a process of its own, on a patched tree: gradients through the target's own sequence sharding, on gloo ranks.

Usage: python trained.py TREE; prints {check: "ok" or the ranks' tracebacks}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from skillgen.evals.kernel.automodel import UNUSED
from skillgen.evals.kernel.inert import InertPackages
from tests.distributed import RankError, run_ranks

VOCAB, HIDDEN, IMAGE = 11, 4, 7


def load(name: str) -> Any:
    with InertPackages(*UNUSED):
        return importlib.import_module(f"nemo_automodel.{name}")


def batches(length: int) -> tuple[dict[str, Tensor], Tensor]:
    """A batch whose embeddings are their own positions, and weights for its loss."""
    place = torch.arange(2.0 * length).view(2, length, 1).expand(2, length, 3).contiguous()
    batch = {
        "inputs_embeds": place,
        "labels": torch.arange(2 * length).view(2, length),
        "position_ids": torch.arange(6 * length).view(3, 2, length),
        "padding_mask": torch.zeros(2, length, dtype=torch.bool),
    }
    return batch, torch.arange(1.0, 6.0 * length + 1).view(2, length, 3)


def sharded(mesh: Any, batch: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The target's own split of a batch, while its context is entered."""
    context, batch = load("components.distributed.cp_utils").make_cp_batch_and_ctx(mesh, batch)
    with context():
        yield batch


def shards_equal_the_buffers(rank: int, world: int) -> None:
    """What trains is cut like the buffers of `context_parallel`, and its gradient is that of the slice."""
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("cp",))
    for length in (2 * world, 8 * world, 8 * world + 3):
        batch, weights = batches(length)
        copies = {name: value.clone() for name, value in batch.items()}
        (expected,) = [{name: value.clone() for name, value in local.items()} for local in sharded(mesh, copies)]
        embeds = batch["inputs_embeds"].clone().requires_grad_()
        for local in sharded(mesh, {**batch, "inputs_embeds": embeds}):
            assert local.keys() == expected.keys()
            assert all(torch.equal(local[name], expected[name]) for name in expected), (length, local, expected)
            real = local["labels"] != -100
            (local["inputs_embeds"] * weights.view(-1, 3)[local["labels"].clamp(min=0)])[real].sum().backward()
        own = torch.zeros(2 * length, dtype=torch.bool)
        own[expected["labels"][expected["labels"] != -100]] = True
        assert embeds.shape == (2, length, 3)
        assert torch.equal(embeds.grad, weights * own.view(2, length, 1))
        dist.all_reduce(embeds.grad)
        assert torch.equal(embeds.grad, weights), "every position is in one shard"


def frozen_embeddings_take_the_old_way(rank: int, world: int) -> None:
    """Embeddings without gradient are a buffer, cut in place, as before."""
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("cp",))
    batch, _ = batches(4 * world)
    embeds = batch["inputs_embeds"]
    for local in sharded(mesh, batch):
        assert local["inputs_embeds"] is embeds and embeds.shape[1] == 4


class Toy(nn.Module):
    """Embeds ids and images before its sequence is cut; then every position is for itself."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.tower = nn.Linear(3, HIDDEN)
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(2))
        self.head = nn.Linear(HIDDEN, VOCAB)
        self.read: list[Tensor] = []
        self.double()

    def prepare_model_inputs_for_cp(self, input_ids: Tensor, pixel_values: Tensor) -> dict[str, Tensor]:
        rows, mask = self.tower(pixel_values), (input_ids == IMAGE)[..., None]
        return {"inputs_embeds": self.embed(input_ids).masked_scatter(mask, rows)}

    def forward(self, *, _pre_embed_only: bool = False, inputs_embeds: Tensor | None = None, **batch: Any) -> Any:
        if _pre_embed_only:
            return self.prepare_model_inputs_for_cp(**batch)
        assert inputs_embeds is not None
        self.read.append(inputs_embeds)
        for layer in self.layers:
            inputs_embeds = inputs_embeds + torch.tanh(layer(inputs_embeds))
        return SimpleNamespace(logits=self.head(inputs_embeds))

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embed


def toy_batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.tensor([[1, IMAGE, IMAGE, 2, 3, 4], [5, 6, IMAGE, 8, 9, IMAGE]])
    return {
        "input_ids": ids,
        "pixel_values": torch.randn(4, 3, generator=generator, dtype=torch.float64),
        "labels": torch.arange(12).view(2, 6) % VOCAB,
    }


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum", ignore_index=-100)


def reference(seed: int) -> Toy:
    """The model after one step on a single rank."""
    model, batch = Toy(seed), toy_batch()
    labels = batch.pop("labels")
    loss_of(model(**model(_pre_embed_only=True, **batch)).logits, labels).backward()
    return model


def recipe(kind: str, model: nn.Module, mesh: Any, world: int) -> Any:
    module = load(f"recipes.vlm.{kind}")
    cls = getattr(module, {"finetune": "FinetuneRecipeForVLM", "kd": "KnowledgeDistillationRecipeForVLM"}[kind])
    made = cls.__new__(cls)
    made.__dict__ |= {
        "dist_env": SimpleNamespace(device=torch.device("cpu"), is_main=False),
        "model_parts": [model],
        "device_mesh": mesh,
        "distributed_config": load("components.distributed.config").FSDP2Config(defer_fsdp_grad_sync=False),
        "pp_enabled": False,
        "pp": None,
        "step_scheduler": SimpleNamespace(is_remote_logging_step=False),
        "loss_fn": lambda logits, labels, **_: loss_of(logits, labels),
        "_get_dp_group_size": lambda include_cp=False: world,
    }
    module.calculate_loss = lambda fn, logits, labels, **_: loss_of(logits, labels)
    return made


def step(made: Any, *, train: bool = True) -> None:
    made._forward_backward_step(0, toy_batch(), loss_buffer=[], num_label_tokens=12, num_batches=1, is_train=train)


def fsdp_units_train(rank: int, world: int) -> None:
    """Under FSDP2 the root's second forward neither loses nor doubles a gradient of what its first one used."""
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("cp",))
    for frozen in ((), ("tower.",), ("embed.", "tower.")):
        model, expected = Toy(0), dict(reference(0).named_parameters())
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not name.startswith(frozen or ("-",)))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["cp"])
        fully_shard(model, mesh=mesh["cp"])
        step(recipe("finetune", model, mesh, world))
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                assert parameter.grad is None, name
            else:
                torch.testing.assert_close({name: parameter.grad.full_tensor()}, {name: expected[name].grad})
        model.zero_grad()
        step(recipe("finetune", model, mesh, world), train=False)
        assert all(parameter.grad is None for parameter in model.parameters())


def teacher_reads_its_own_embeddings(rank: int, world: int) -> None:
    """The student trains; the teacher embeds for itself, without gradient, cut like the student's."""
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("cp",))
    student, teacher = Toy(0), Toy(1)
    teacher.requires_grad_(False)
    made = recipe("kd", student, mesh, world)
    made.__dict__ |= {"teacher_model": teacher, "_offload_teacher_model": False, "kd_ratio": 0.0}
    made.__dict__ |= {"_ce_loss_buffer": [], "_kd_loss_buffer": []}
    made.kd_loss_fn = lambda student_logits, teacher_logits, labels, **_: student_logits.sum() * 0
    step(made)
    for model in (student, teacher):
        batch = toy_batch()
        labels = batch.pop("labels")
        with torch.no_grad():
            embeds = model(_pre_embed_only=True, **batch)
        (local,) = [{**local} for local in sharded(mesh, {**embeds, "labels": labels})]
        torch.testing.assert_close(model.read[0].detach(), local["inputs_embeds"][:, : model.read[0].shape[1]])
    assert student.read[0].requires_grad and not teacher.read[0].requires_grad
    expected = dict(reference(0).named_parameters())
    for name, parameter in student.named_parameters():
        grad = parameter.grad / world  # no data-parallel average here, for which the recipe scales the loss
        dist.all_reduce(grad)
        torch.testing.assert_close({name: grad}, {name: expected[name].grad})
    step(made, train=False)
    assert not student.read[1].requires_grad


CHECKS = {
    "shards equal the buffers, 2 ranks": (2, shards_equal_the_buffers),
    "shards equal the buffers, 4 ranks": (4, shards_equal_the_buffers),
    "frozen embeddings take the old way": (2, frozen_embeddings_take_the_old_way),
    "FSDP units train": (2, fsdp_units_train),
    "teacher reads its own embeddings": (2, teacher_reads_its_own_embeddings),
}


def main(tree: str) -> None:
    sys.path.insert(0, tree)
    for name in ("components.distributed.cp_utils", "components.distributed.config", "recipes.vlm.kd"):
        load(name)
    results = {}
    for name, (world, check) in CHECKS.items():
        try:
            run_ranks(world, check, world, timeout=120)
            results[name] = "ok"
        except RankError as error:
            results[name] = str(error)[-2000:]
    print(json.dumps(results))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
