"""A tiny GPT of megatron-core: local layers, whose core attention is the target's TEDotProductAttention."""

from __future__ import annotations

import zlib
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from skillgen.evals.hierarchical_cp.paths import Made, Paths, config_of
from skillgen.evals.kernel import tables
from skillgen.evals.kernel.stand_in import DotProductAttention
from skillgen.evals.kernel.tables import Shape

VOCABULARY = 64
BATCH = 2


def build(
    paths: Paths, shape: Shape, made: Made, *, collection: bool = True, on: bool = True, **changes: Any
) -> nn.Module:
    """The model of this rank; without `collection` its layers look for their groups in the globals."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    config = config_of(shape, on=on, **changes)
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = paths.attention()
    stage = pipeline_rank(shape)
    model = GPTModel(
        config,
        spec,
        vocab_size=VOCABULARY,
        max_sequence_length=length(shape),
        pre_process=stage == 0,
        post_process=stage == shape.pp - 1,
        parallel_output=False,
        share_embeddings_and_output_weights=False,
        position_embedding_type="learned_absolute",
        pg_collection=made.collection if collection else None,
    )
    model.to(paths.device, config.params_dtype)  # torch's own norms come in the default one
    settle(model)
    return model


def attentions(model: nn.Module) -> list[Any]:
    """The core attention of every layer."""
    return [layer.self_attention.core_attention for layer in model.decoder.layers]  # type: ignore[union-attr]


def length(shape: Shape, chunk: int = 2) -> int:
    """Positions of a sequence with `chunk` of them in each of the 2 * CP chunks."""
    return 2 * shape.cp * chunk


def pipeline_rank(shape: Shape) -> int:
    return (dist.get_rank() - shape.offset) // (shape.tp * shape.cp * shape.dp)


def settle(model: nn.Module) -> None:
    """The same weights in every run and on every rank, by name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise * 0.2 + (1.0 if "norm" in name and name.endswith("weight") else 0.0))


def step(model: nn.Module, shape: Shape, *, whole: bool) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of a batch, summed over CP; with `whole` of the whole sequence on each rank."""
    seq = length(shape)
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(VOCABULARY, (BATCH, seq + 1), generator=generator).to(device)
    ranks = next(ranks for ranks in tables.cp_ranks(shape) if dist.get_rank() in ranks)
    index = ranks.index(dist.get_rank())
    own = list(range(seq)) if whole else tables.positions(index, shape.cp, seq // (2 * shape.cp))
    where = torch.tensor(own, device=device)
    model.zero_grad()
    DotProductAttention.whole = whole
    try:
        logits = model(tokens[:, own], where.expand(BATCH, -1), None)
        losses = F.cross_entropy(logits.flatten(0, 1).double(), tokens[:, where + 1].flatten(), reduction="none")
        loss = losses.sum() / (BATCH * seq)
        loss.backward()
    finally:
        DotProductAttention.whole = False
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    total = loss.detach()
    if not whole:
        for value in [total, *found.values()]:
            _sum_over(value, ranks)
    return float(total), found


def _sum_over(value: Tensor, ranks: list[int]) -> None:
    """Sum over this rank's CP peers, without their group: what it is made of is on trial."""
    gathered = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, value.contiguous())
    value.copy_(torch.stack([gathered[rank] for rank in ranks]).sum(0))


def relative(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Distance of two sets of gradients, of the size of the wanted one."""
    assert found.keys() == wanted.keys() and wanted
    gap = sum(float((found[name] - wanted[name]).square().sum()) for name in wanted)
    return float((gap / sum(float(value.square().sum()) for value in wanted.values())) ** 0.5)
