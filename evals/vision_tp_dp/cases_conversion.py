"""Conversion: Hugging Face's vision weights reach every rank's part of the tower, and come back from it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.kernel.families import settle_weights
from skillgen.evals.vision_tp_dp.families import Qwen3VL
from skillgen.evals.vision_tp_dp.models import VISION, Models, shard_of
from skillgen.evals.vision_tp_dp.worlds import ALONE, Mode, layouts, modes

HF = "model.visual."


def cases(context: Context, family: Qwen3VL) -> Iterator[Case]:
    """Every mode of the layouts without replicas of the data."""
    for layout in layouts(context.world):
        for mode in modes(layout) if layout.dp == 1 else ():
            yield Case("conversion", f"{mode}: there and back", partial(round_trip, context, family, mode))


def round_trip(context: Context, family: Qwen3VL, mode: Mode) -> Result:
    """Into the mode's tower, whose parts must be those of a tower on one rank; then out of it."""
    models = Models(context, family)
    theirs = source(context, family)
    alone = models.fresh(Mode(ALONE))
    load(family, alone, theirs)
    whole = {name: p.detach() for name, p in alone.named_parameters() if name.startswith(VISION)}
    model = models.fresh(mode)
    load(family, model, theirs)
    local = {name: p.detach() for name, p in model.named_parameters() if name.startswith(VISION)}
    wrong = [name for name, p in local.items() if not torch.equal(p, shard_of(model, name, whole[name], p))]
    returned = dump(family, model, theirs)
    lost = [name for name, p in theirs.state.items() if name not in returned or not torch.equal(returned[name], p)]
    return Result(
        {
            f"parts of the tower differ: {wrong[:2]}": (float(len(wrong)), 0),
            f"weights do not come back: {lost[:2]}": (float(len(lost)), 0),
            "weights are not in the mappings": (float(len(returned) != len(theirs.state)), 0),
        }
    )


def source(context: Context, family: Qwen3VL) -> Any:
    """A checkpoint of Hugging Face's tower, as the converter sees one."""
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

    tower = Qwen3VLVisionModel(family.vision_config()).double()
    settle_weights(tower, seed=7)
    weights = {HF + name: tensor.detach().to(context.device) for name, tensor in tower.named_parameters()}
    family.harness.bridge()  # what it is made of imports with it alone
    state = family.harness.load("models.hf_pretrained.state").StateDict(weights)
    return SimpleNamespace(state=state, config=SimpleNamespace(), model_name_or_path="Qwen3-VL")


def tasks(family: Qwen3VL, model: Any, theirs: Any) -> tuple[Any, list[Any]]:
    """The target's converter, and its tasks for the tower."""
    bridge = family.harness.bridge()
    found = bridge.build_conversion_tasks(theirs, [model])
    return bridge, [task for task in found if task is not None and task.param_name.startswith(VISION)]


def load(family: Qwen3VL, model: Any, theirs: Any) -> None:
    """Through the mappings of the target, as its own loading does."""
    bridge, found = tasks(family, model, theirs)
    with torch.no_grad():
        for task in found:
            task.param_weight.zero_()
            weights = bridge.maybe_modify_loaded_hf_weight(task.mapping.hf_param, theirs.state)
            task.param_weight.copy_(task.mapping.hf_to_megatron(weights, task.megatron_module))


def dump(family: Qwen3VL, model: Any, theirs: Any) -> dict[str, Tensor]:
    """Through the target's own export."""
    bridge, found = tasks(family, model, theirs)
    stream = bridge.stream_weights_megatron_to_hf(
        [model], theirs, cpu=False, show_progress=False, conversion_tasks=found
    )
    return dict(stream)
