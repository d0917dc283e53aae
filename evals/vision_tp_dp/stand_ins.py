"""Layers in place of Transformer Engine's on CPUs: norms of torch, and attention of packed or sharded sequences."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skillgen.evals.kernel.attention import Groups, hierarchical


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
        return packed(query, key, value, packed_seq_params.cu_seqlens_q.tolist(), self.causal)


def packed(query: Tensor, key: Tensor, value: Tensor, bounds: list[int], causal: bool) -> Tensor:
    """Attention within each segment of [t, h, d]; [t, h * d]."""
    return _Segments.apply(query, key, value, [end - start for start, end in pairwise(bounds)], causal)


class _Segments(torch.autograd.Function):
    """Forward: each segment by itself. Backward: each once more, with gradient.

    So it keeps what a fused kernel for packed sequences does, but for a number per row and head.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, sizes: list[int], causal: bool) -> Tensor:
        ctx.sizes, ctx.causal = sizes, causal
        ctx.save_for_backward(query, key, value)
        return torch.cat([attend(q, k, v, causal) for q, k, v in _segments(sizes, query, key, value)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        found = []
        for *parts, wanted in _segments(ctx.sizes, *ctx.saved_tensors, grad):
            query, key, value = (part.detach().requires_grad_() for part in parts)
            with torch.enable_grad():
                output = attend(query, key, value, ctx.causal)
            found.append(torch.autograd.grad(output, (query, key, value), wanted))
        return (*(torch.cat(parts) for parts in zip(*found, strict=True)), None, None)


def attend(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    """Of [t, h, d] each; [t, h * d]."""
    q, k, v = (part.transpose(0, 1)[None] for part in (query, key, value))  # fused kernels want a batch
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)[0].transpose(0, 1).flatten(1)


def _segments(sizes: list[int], *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(tensor.split(sizes) for tensor in tensors), strict=True)


def local(spec: Any) -> Any:
    """A local layer spec of megatron-core with these norms and this attention."""
    layer = spec.submodules
    layer.input_layernorm = layer.pre_mlp_layernorm = Norm
    attention = layer.self_attention.submodules
    attention.core_attention = CoreAttention
    if attention.q_layernorm is not None:
        attention.q_layernorm = attention.k_layernorm = Norm
    return spec
