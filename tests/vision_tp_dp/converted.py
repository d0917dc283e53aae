"""Load Hugging Face's vision weights into patched models and export them again, on forked ranks.

Usage: python converted.py TARGET MCORE [--without-groups]; prints {"TP x PP, vision TP": wrong weights per rank}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor

from skillgen.evals.kernel.inert import InertPackages
from skillgen.evals.vision_tp_dp.families import PATCH, TEMPORAL, Qwen3VL
from skillgen.evals.vision_tp_dp.surroundings import TpDpHarness
from skillgen.evals.vision_tp_dp.worlds import Layout, Mode
from tests.distributed import RankError, run_ranks

INERT = ("omegaconf", "modelopt", "transformer_engine", "PIL")
WORLDS = ((4, 1, 1), (4, 1, 2), (4, 1, 4), (2, 2, 1))  # text TP, PP, vision TP
LAYERS = 4  # two for each pipeline stage, and as many as deepstack levels on the first


def weights(config: Any) -> dict[str, Tensor]:
    """Hugging Face's vision weights by name."""
    width, inner, merged = config.hidden_size, config.intermediate_size, 4 * config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embed.proj.weight": (width, 3, TEMPORAL, PATCH, PATCH),
        "patch_embed.proj.bias": (width,),
        "pos_embed.weight": (config.num_position_embeddings, width),
    }
    for layer in (f"blocks.{number}." for number in range(config.depth)):
        linear = {"attn.qkv": (3 * width, width), "attn.proj": (width, width)}
        linear |= {"mlp.linear_fc1": (inner, width), "mlp.linear_fc2": (width, inner)}
        shapes |= {f"{layer}{name}.weight": shape for name, shape in linear.items()}
        shapes |= {f"{layer}{name}.bias": shape[:1] for name, shape in linear.items()}
        shapes |= {f"{layer}{name}.{part}": (width,) for name in ("norm1", "norm2") for part in ("weight", "bias")}
    levels = len(config.deepstack_visual_indexes)
    for merger, norm in (("merger.", width), *((f"deepstack_merger_list.{i}.", merged) for i in range(levels))):
        shapes |= {f"{merger}norm.{part}": (norm,) for part in ("weight", "bias")}
        for name, rows in (("linear_fc1", merged), ("linear_fc2", config.out_hidden_size)):
            shapes |= {f"{merger}{name}.weight": (rows, merged), f"{merger}{name}.bias": (rows,)}
    generator = torch.Generator().manual_seed(0)
    return {f"model.visual.{name}": torch.randn(s, generator=generator).double() for name, s in shapes.items()}


def convert(rank: int, family: Qwen3VL, bridge: Any, tp: int, pp: int, vision_tp: int) -> list[str]:
    """Names of vision weights that differ after import and export; an export goes through every pipeline stage."""
    from megatron.core import parallel_state
    from megatron.core.process_groups_config import ProcessGroupCollection

    parallel_state.initialize_model_parallel(tp, pipeline_model_parallel_size=pp, create_gloo_process_groups=False)
    sizes = {"pipeline_model_parallel_size": pp, "pipeline_dtype": torch.float64, "num_layers": LAYERS}
    mode = Mode(Layout(tp, 1), vision_tp, sequence_parallel=True)
    provider = family.provider(mode, share_embeddings_and_output_weights=False, **sizes)
    provider._pg_collection = ProcessGroupCollection.use_mpu_process_groups()
    model = provider.provide(parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage())
    model.double()
    full = weights(provider.vision_config)
    source = SimpleNamespace(get_all_keys=lambda: list(full))
    pretrained = SimpleNamespace(state=SimpleNamespace(source=source), config=SimpleNamespace())

    def tasks() -> list[Any]:
        found = [task for task in bridge().build_conversion_tasks(pretrained, [model]) if task is not None]
        return [task for task in found if task.global_param_name.startswith("vision_model.")]

    for task in tasks():
        if task.megatron_module is not None:
            loaded = task.mapping.hf_to_megatron(full[task.mapping.hf_param], task.megatron_module)
            task.param_weight.data.copy_(loaded)
    back: dict[str, Tensor] = {}
    for task in tasks():
        back |= task.mapping.megatron_to_hf(task.param_weight, task.megatron_module)
    return [name for name, weight in full.items() if not (name in back and torch.equal(back[name], weight))]


def main(target: str, mcore: str, *options: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    harness = TpDpHarness(target, mcore)
    family = Qwen3VL(harness)
    harness.shells(".models.conversion", ".peft")
    with InertPackages(*INERT):
        conversion = harness.load("models.conversion.model_bridge")
        bridge = harness.load("models.qwen_vl.qwen3_vl_bridge").Qwen3VLBridge
    if options:
        conversion._set_vision_process_groups = lambda *_: None
    found: dict[str, Any] = {}
    for world in WORLDS:
        name = "TP {} x PP {}, vision TP {}".format(*world)
        try:
            found[name] = run_ranks(world[0] * world[1], convert, family, bridge, *world)
        except RankError as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
