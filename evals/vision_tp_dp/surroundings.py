"""What a CPU needs to run Qwen3-VL of Megatron-Bridge: stand-ins for Transformer Engine's layers and for CUDA."""

from __future__ import annotations

import contextlib
import importlib
import types
from typing import Any

import torch

from skillgen.evals.kernel.harness import Harness, Skip
from skillgen.evals.kernel.inert import InertPackages
from skillgen.evals.kernel.surroundings import bridge_module
from skillgen.evals.vision_tp_dp.stand_ins import CoreAttention, Norm, local

PACKAGES = (".models.qwen_vl", ".models.qwen_vl.modelling_qwen3_vl")
MODEL = "models.qwen_vl.modelling_qwen3_vl.model"
PROVIDER = "models.qwen_vl.qwen3_vl_provider"
CONVERSION = (".models.conversion", ".models.hf_pretrained", ".models.qwen", ".peft")
ABSENT = ("transformer_engine", "modelopt", "omegaconf", "datasets", "peft")
TP_DP = "tp_dp"  # the subpackage of the vendored runtime


class TpDpHarness(Harness):
    """A patched Megatron-Bridge whose Qwen3-VL runs on CPUs."""

    technique = "vision-tp-dp"

    def __init__(self, target_root: str, mcore: str | None = None) -> None:
        super().__init__(target_root, mcore)
        self.shells(*PACKAGES)

    def parts(self) -> types.ModuleType:
        """The runtime's subpackage of this technique; Skip if the target has none."""
        self.runtime()
        try:
            return importlib.import_module(f"{self.runtime_name}.{TP_DP}")
        except ModuleNotFoundError as error:
            raise Skip(f"the target has no {self.runtime_name}.{TP_DP}: apply {self.technique} to it first") from error

    def prepare(self) -> tuple[Any, Any]:
        """The modules of the model and of its provider, local layers in place of Transformer Engine's."""
        code, provider = self.beside_engine(MODEL), self.beside_engine(PROVIDER)
        if code.TENorm is not Norm:
            self._stand_in_for_engine(code, provider)
            if not torch.cuda.is_available():
                self._stand_in_for_cuda()
        return code, provider

    def beside_engine(self, module: str) -> Any:
        """Import a module that asks for Transformer Engine's names, which megatron-core has where it is absent too."""
        self.stands_in("inert packages where they are absent: omegaconf (configuration files), triton (GPU kernels)")
        with InertPackages("omegaconf", "triton"):
            return self.load(module)

    def bridge(self) -> Any:
        """The target's converter between Hugging Face's Qwen3-VL and its own."""
        self.shells(*CONVERSION)
        with InertPackages(*ABSENT):
            code = self.load("models.qwen_vl.qwen3_vl_bridge")
        self.stands_in(f"inert packages where they are absent: {', '.join(ABSENT)} (conversion imports them)")
        return code.Qwen3VLBridge()

    def setup(self) -> types.ModuleType:
        """The target's training.setup; what it imports beside the model is inert."""
        return bridge_module(self, "training.setup", "models.common", "training.fsdp_compat")

    def _stand_in_for_engine(self, code: Any, provider: Any) -> None:
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
        from megatron.core.models.vision.vit_layer_specs import get_vit_layer_with_local_spec
        from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
        from megatron.core.transformer import transformer_block

        def vision_spec() -> Any:
            return local(get_vit_layer_with_local_spec())

        def language_spec(**options: Any) -> Any:
            return local(get_gpt_layer_local_spec(qk_layernorm=options["qk_layernorm"]))

        code.get_vit_layer_with_transformer_engine_spec = vision_spec
        provider.get_gpt_layer_with_transformer_engine_spec = language_spec
        code.TENorm, code.TEColumnParallelLinear, code.TERowParallelLinear = (
            Norm,
            ColumnParallelLinear,
            RowParallelLinear,
        )
        transformer_block.LayerNormImpl = Norm
        vars(self.load(f"{PACKAGES[-1][1:]}.attention"))["TEDotProductAttention"] = CoreAttention  # main asks for it
        self.stands_in("Transformer Engine's linear layers: megatron-core's local ones, by its own local layer specs")
        self.stands_in("Transformer Engine's norms: torch's, whose parameters say whether the sequence is sharded")
        self.stands_in(
            "Transformer Engine's attention: scaled_dot_product_attention per segment (vision), a causal reference "
            "with ring exchange over CP (language)"
        )

    def _stand_in_for_cuda(self) -> None:
        """CUDA's tracing, streams and random states are asked for on every path; on CPUs they are nothing."""
        from megatron.core.tensor_parallel import random

        torch.cuda.nvtx = types.SimpleNamespace(range_push=lambda *_: None, range_pop=lambda *_: None)  # type: ignore[assignment]
        torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
        torch.cuda.current_stream = lambda *_: types.SimpleNamespace(wait_stream=lambda _: None)  # type: ignore[assignment]
        random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
        random._get_all_rng_states = lambda: (torch.get_rng_state(),)
        random._set_all_rng_states = lambda state: torch.set_rng_state(state)
        self.stands_in("torch.cuda: current_device is the CPU; nvtx, streams and random states are inert")
