"""Nemotron Omni (canonical model): packed patches, RADIO tower and MCore projector, tubelets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn

from skillgen.evals.kernel.families import IMAGE_ID, VOCAB, Batch, Family, Item, Layout, PointwiseLM, pixels, sequence
from skillgen.evals.kernel.harness import Harness, Skip

PATCH = 32  # the tower always makes position embeddings for 2048 x 2048 pixels
FEATURES = 3 * PATCH * PATCH


class NemotronOmni(Family):
    name = "nemotron_omni"
    packages = (".models.nemotron_omni",)
    module = "models.nemotron_omni.modeling_nemotron_omni"
    video = True
    odd_grids = True
    variants = ("tubelets of 2", "frames alone")

    def __init__(self, harness: Harness, variant: str = "") -> None:
        super().__init__(harness, variant)
        if not hasattr(self.code, "_build_vision_packed_seq_params"):
            raise Skip(
                "this release's Nemotron Omni encodes images inside megatron-core; the canonical model is on main"
            )
        if hasattr(self.code, "split_to_context_parallel_ranks_dynamic_res"):
            self.splitter = "mcore"
        self.tubelet = 1 if variant == "frames alone" else 2
        harness.stands_in("nemotron_omni: core attention of the local layer spec runs SDPA per cu_seqlens segment")

    def build(self, layout: Layout, flag: bool, *, large: bool = False) -> nn.Module:
        from megatron.core.transformer.transformer_config import TransformerConfig

        width, depth = (128, 4) if large else (32, 2)
        common: dict[str, Any] = {"num_attention_heads": 4, "use_cpu_initialization": True, "hidden_dropout": 0.0}
        common |= {"attention_dropout": 0.0, "bias_dropout_fusion": False, "gradient_accumulation_fusion": False}
        language = TransformerConfig(
            num_layers=1, hidden_size=self.hidden, context_parallel_size=layout.cp_size, **common
        )
        language.logit_dtype = None  # a field of Bridge's own config class
        tower = TransformerConfig(num_layers=depth, hidden_size=width, ffn_hidden_size=2 * width, **common)
        projection = TransformerConfig(num_layers=1, hidden_size=self.hidden, ffn_hidden_size=self.hidden, **common)
        layer, mlp = _local_specs()
        self.code.HybridModel = lambda **_: PointwiseLM(self.hidden, collection=layout.language_collection)
        self.code.logit_dtype_kwarg = lambda *_: {}
        optional = {"vision_dp_over_cp": flag} if _takes(self.code.NemotronOmniModel, "vision_dp_over_cp") else {}
        return self.code.NemotronOmniModel(
            language_transformer_config=language,
            language_transformer_layer_spec=None,
            language_vocab_size=VOCAB,
            language_max_sequence_length=4096,
            vision_transformer_config=tower,
            vision_transformer_layer_spec=layer,
            vision_projection_config=projection,
            vision_projection_layer_spec=mlp,
            image_token_index=IMAGE_ID,
            img_h=8 * PATCH,
            img_w=8 * PATCH,
            patch_dim=PATCH,
            vision_class_token_len=2,
            radio_force_cpe_eval_mode=True,
            temporal_patch_dim=self.tubelet,
            separate_video_embedder=self.tubelet > 1,
            pg_collection=layout.collection,
            **optional,
        )

    def batch(self, items: Sequence[Item], seed: int) -> Batch:
        frames = [self._frames(item) for item in items]
        units = [-(-count // self.tubelet) for count in frames]
        rows = [count * item.rows * item.cols for count, item in zip(units, items, strict=True)]
        ids, labels, loss_mask = sequence([(IMAGE_ID, n) for n in rows], seed)
        inputs: dict[str, Any] = {"input_ids": ids}
        if not items:
            return Batch(inputs, (), labels, loss_mask)
        sides = [(2 * i.rows - i.odd, 2 * i.cols - i.odd) for i in items]
        sizes = [(h * PATCH, w * PATCH) for (h, w), count in zip(sides, frames, strict=True) for _ in range(count)]
        patches = sum(h * w * count for (h, w), count in zip(sides, frames, strict=True))
        inputs["images"] = pixels((1, patches, FEATURES), seed)
        inputs["imgs_sizes"] = torch.tensor(sizes)
        if self.tubelet > 1:
            inputs["num_frames"] = torch.tensor(frames)
        return Batch(inputs, ("images",), labels, loss_mask, sum(rows), 1)

    def _frames(self, item: Item) -> int:
        """Frames of an item; a video of several temporal patches ends in a lone frame."""
        if item.frames == 0:
            return 1
        return item.frames * self.tubelet - (self.tubelet - 1 if item.frames > 1 else 0)

    def replicate(self, model: nn.Module) -> None:
        if not hasattr(model, "_encode_images_over_cp"):
            raise Skip("this form of the patch cannot encode odd grids on every rank, for comparison")
        model._encode_images_over_cp = model._encode_images

    def tower(self, model: nn.Module) -> nn.Module:
        return model.vision_model  # type: ignore[return-value]

    def projector(self, model: nn.Module) -> nn.Module:
        return model.vision_projection  # type: ignore[return-value]

    def patches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        counts = kwargs["num_frames"].tolist() if self.tubelet > 1 else [1] * len(kwargs["imgs_sizes"])
        firsts = [0, *accumulate(counts)]
        sizes = [kwargs["imgs_sizes"][first].tolist() for first in firsts[:-1]]
        # The blocks see a tubelet once, however many frames it holds.
        return sum(
            -(-n // self.tubelet) * (h // PATCH) * (w // PATCH) for n, (h, w) in zip(counts, sizes, strict=True)
        )

    def checkpoint_tower(self, model: nn.Module) -> None:
        """MCore's own recompute wants a CUDA random state; recompute each layer with PyTorch's."""
        from torch.utils.checkpoint import checkpoint

        for layer in self.tower(model).decoder.layers:  # type: ignore[union-attr]
            inner = layer.forward
            layer.forward = lambda *a, inner=inner, **k: checkpoint(inner, *a, use_reentrant=False, **k)


def _takes(cls: type, parameter: str) -> bool:
    import inspect

    return parameter in inspect.signature(cls).parameters


def _local_specs() -> tuple[Any, Any]:
    """Layer and projector specs of MCore's local modules; only the core attention is ours."""
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.mlp import MLP, MLPSubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

    mlp = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)
    layer = ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(
            input_layernorm=WrappedTorchNorm,
            self_attention=ModuleSpec(
                module=SelfAttention,
                params={"attn_mask_type": AttnMaskType.no_mask},
                submodules=SelfAttentionSubmodules(
                    linear_qkv=ColumnParallelLinear, core_attention=SegmentAttention, linear_proj=RowParallelLinear
                ),
            ),
            self_attn_bda=get_bias_dropout_add,
            pre_mlp_layernorm=WrappedTorchNorm,
            mlp=ModuleSpec(module=MLP, submodules=mlp),
            mlp_bda=get_bias_dropout_add,
        ),
    )
    return layer, mlp


class SegmentAttention(nn.Module):
    """Core attention for packed sequences on any device: plain SDPA within each cu_seqlens segment."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, packed_seq_params: Any, **_: Any
    ) -> torch.Tensor:
        """[tokens, heads, width] each, to [tokens, heads * width]."""
        bounds = packed_seq_params.cu_seqlens_q.tolist()
        outs = []
        for start, end in pairwise(bounds):
            q, k, v = (x[start:end].transpose(0, 1)[None] for x in (query, key, value))
            outs.append(nn.functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1))
        return torch.cat(outs).flatten(1)


FAMILY = NemotronOmni
