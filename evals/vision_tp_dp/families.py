"""Qwen3-VL of the target, tiny: built by its own provider, on groups of megatron-core's parallel_state."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from skillgen.evals.kernel.harness import Skip
from skillgen.evals.vision_tp_dp.surroundings import TpDpHarness
from skillgen.evals.vision_tp_dp.worlds import HEADS, LANGUAGE_HEADS, Mode

VOCAB, HIDDEN = 128, 48
IMAGE_ID, VIDEO_ID, VISION_START, VISION_END = 100, 101, 103, 104
PATCH, TEMPORAL, MERGE = 2, 2, 2
FEATURES = 3 * TEMPORAL * PATCH * PATCH
LANGUAGE = {
    "num_layers": 2,
    "hidden_size": HIDDEN,
    "ffn_hidden_size": 64,
    "num_attention_heads": LANGUAGE_HEADS,
    "num_query_groups": LANGUAGE_HEADS,
    "vocab_size": VOCAB,
    "seq_length": 64,
    "normalization": "RMSNorm",
    "gated_linear_unit": False,
    "add_bias_linear": False,
    "persist_layer_norm": False,
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
    "masked_softmax_fusion": False,
    "gradient_accumulation_fusion": False,
    "hidden_dropout": 0.0,
    "mrope_section": [1, 1, 1],
    "image_token_id": IMAGE_ID,
    "video_token_id": VIDEO_ID,
    "vision_start_token_id": VISION_START,
    "vision_end_token_id": VISION_END,
    "calculate_per_token_loss": True,
    "use_cpu_initialization": True,
    "params_dtype": torch.float64,
}


class Qwen3VL:
    """Vision tower with deepstack levels, and a language model of two layers; dense, TP x CP x DP."""

    name: ClassVar[str] = "qwen3_vl"
    levels: ClassVar[int] = 2
    variants: ClassVar[tuple[str, ...]] = ("",)

    def __init__(self, harness: TpDpHarness, variant: str = "") -> None:
        self.harness, self.variant = harness, variant
        self.code, self.provider_code = harness.prepare()

    def vision_config(self, large: bool = False) -> Any:
        """The tower's sizes, as a checkpoint states them."""
        from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig

        width, depth = (64, 4) if large else (32, 3)
        return Qwen3VLVisionConfig(
            depth=depth,
            hidden_size=width,
            intermediate_size=2 * width,
            num_heads=HEADS,
            in_channels=3,
            patch_size=PATCH,
            temporal_patch_size=TEMPORAL,
            spatial_merge_size=MERGE,
            out_hidden_size=HIDDEN,
            num_position_embeddings=64,
            deepstack_visual_indexes=[*range(self.levels)],
        )

    def provider(self, mode: Mode, **changes: Any) -> Any:
        """The target's provider, finalized as before a training."""
        layout = mode.layout
        options: dict[str, Any] = {
            "tensor_model_parallel_size": layout.tp,
            "context_parallel_size": layout.cp,
            "sequence_parallel": mode.sequence_parallel and layout.tp > 1,
            "vision_config": self.vision_config(mode.large),
        }
        if mode.recompute:
            options |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        if mode.vision_tp is not None:
            options |= {"vision_tp_dp": True, "vision_tp_size": mode.vision_tp}
        if mode.blocks is not None:
            options["vision_block_patches"] = mode.blocks
        provider = self.provider_code.Qwen3VLModelProvider(**{**LANGUAGE, **options, **changes})
        provider.finalize()
        return provider

    def providers(self) -> dict[str, Any]:
        """The providers of all models that have this tower, by name."""
        modules = (self.provider_code, self.harness.beside_engine("models.qwen_vl.qwen35_vl_provider"))
        found = {name: kind for code in modules for name, kind in vars(code).items() if name.endswith("ModelProvider")}
        return {name: kind for name, kind in found.items() if "VL" in name}

    def build(self, mode: Mode, collection: Any) -> Any:
        """The target's model by its own provider, in fp64; a large one, whose cost is measured, in fp32."""
        provider = self.provider(mode)
        provider._pg_collection = collection
        model = provider.provide(True, True)
        if mode.large:
            return model.float()
        model.double()
        # upstream rounds to fp32 in two places, which would hide what is wrong by less
        model.vision_model.config.apply_rotary_pos_emb_in_fp32 = False
        model.language_model.compute_language_model_loss = partial(_loss, collection.tp)
        self.harness.stands_in(
            "fp64 throughout: rotary embedding of the tower, and the loss of logits gathered over TP"
        )
        return model


def _loss(group: Any, labels: Tensor, logits: Tensor) -> Tensor:
    """[sequences, positions] of [positions, sequences, vocabulary / TP] logits."""
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region

    whole = gather_from_tensor_model_parallel_region(logits, group=group)
    return F.cross_entropy(whole.permute(1, 2, 0), labels, reduction="none")


def load(name: str) -> type[Qwen3VL]:
    """The class of a family."""
    if name != Qwen3VL.name:
        raise Skip(f"no case judges {name}")
    return Qwen3VL
