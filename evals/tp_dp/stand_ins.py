"""Layers in place of Transformer Engine's on CPUs: norms of torch, and attention of packed or sharded sequences."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skillgen.evals.hcp.attention import Groups, hierarchical


class Norm:
    """Makes torch's norm; its parameters tell whether the sequence is sharded over TP, as Transformer Engine's do."""

    def __new__(cls, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> nn.Module:  # type: ignore[misc]
        norm = {"LayerNorm": nn.LayerNorm, "RMSNorm": nn.RMSNorm}[config.normalization](hidden_size, eps=eps)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm


class CoreAttention(nn.Module):
    """Packed [t, h, d]: each segment by itself, in full or causal. Dense [s, b, h, d]: causal, zigzag over CP."""

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        pg_collection: Any = None,
        **_: Any,
    ) -> None:
        super().__init__()
        self.causal = "causal" in attn_mask_type.name
        sharded = self.causal and pg_collection is not None and pg_collection.cp.size() > 1
        self.groups = Groups(outer=pg_collection.cp) if sharded else Groups()

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Any, packed_seq_params: Any = None, **_: Any
    ) -> Tensor:
        """[t, h * d], or [s, b, h * d]."""
        if packed_seq_params is None:
            return hierarchical(query, key, value, self.groups).flatten(2)
        bounds = packed_seq_params.cu_seqlens_q.tolist()
        sizes = [end - start for start, end in pairwise(bounds)]
        parts = [[part.transpose(0, 1) for part in tensor.split(sizes)] for tensor in (query, key, value)]
        attended = [
            F.scaled_dot_product_attention(q, k, v, is_causal=self.causal) for q, k, v in zip(*parts, strict=True)
        ]
        return torch.cat([part.transpose(0, 1) for part in attended]).flatten(1)


def local(spec: Any) -> Any:
    """A local layer spec of megatron-core with these norms and this attention."""
    layer = spec.submodules
    layer.input_layernorm = layer.pre_mlp_layernorm = Norm
    attention = layer.self_attention.submodules
    attention.core_attention = CoreAttention
    if attention.q_layernorm is not None:
        attention.q_layernorm = attention.k_layernorm = Norm
    return spec
