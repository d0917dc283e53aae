"""Run in a process of its own, on a patched tree: read YAML files as the target's command line does, print outcomes.

Usage: python configured.py TREE CASES.json, a list of {"yaml": text, "overrides": [words], "recipe": model or null}.
Each outcome is {"policy": {option: value}} or {"error": [type, message]}; with a recipe, of its own `setup`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from skillgen.evals.kernel.automodel import UNUSED
from skillgen.evals.kernel.inert import InertPackages

BEFORE_SETUP_CHECK = (
    "setup_logging", "apply_cache_compatibility_patches", "StatefulRNG", "apply_te_patches",
    "shard_optimizers_for_megatron_fsdp",
)  # fmt: skip


class Reached(Exception):
    """The recipe's setup came to the data, past its checks of the model."""


class Config(mock.MagicMock):
    """A recipe's configuration of which only the distributed part matters."""

    def get(self, key: str, default: Any = None) -> Any:
        return default


def load(name: str) -> Any:
    with InertPackages(*UNUSED):
        return importlib.import_module(f"nemo_automodel.{name}")


def build(case: dict[str, Any], path: Path) -> Any:
    """The strategy's configuration, all the way from the file and the command line's words."""
    path.write_text(case["yaml"])
    words = ["--config", str(path), *case.get("overrides", [])]
    config = load("components.config._arg_parser").parse_args_and_load_config(argv=words)
    setup = load("recipes._dist_utils").create_distributed_setup_from_config
    if case.get("recipe") is None:
        return setup(config, world_size=1).strategy_config
    return set_up(config, case["recipe"])


def set_up(config: Any, model: str) -> Any:
    """Run the recipe's own `setup` on a model of this file and class, until it comes to the data."""
    import torch

    finetune = load("recipes.vlm.finetune")
    recipe = finetune.FinetuneRecipeForVLM.__new__(finetune.FinetuneRecipeForVLM)
    own = mock.MagicMock(world_size=1, is_main=False)
    recipe.__dict__["cfg"] = Config(distributed=config.distributed)
    module, _, name = model.rpartition(".")
    cls = getattr(load(module), name)
    part = cls.__new__(cls)
    torch.nn.Module.__init__(part)
    doubles = dict.fromkeys(BEFORE_SETUP_CHECK, mock.DEFAULT)
    with (
        mock.patch.multiple(finetune, **doubles),
        mock.patch.object(finetune, "initialize_distributed", return_value=own),
        mock.patch.object(finetune, "build_model", return_value=part),
        mock.patch.object(finetune, "build_dataloader", side_effect=Reached),
        mock.patch.object(torch.cuda, "reset_peak_memory_stats"),
        mock.patch.multiple(type(recipe), _log_experiment_details=mock.DEFAULT, _log_library_versions=mock.DEFAULT),
    ):
        try:
            recipe.setup()
        except Reached:
            return recipe.distributed_config


def outcome(case: dict[str, Any], path: Path) -> dict[str, Any]:
    glue = load("components.distributed.vision_frame_sharding")
    try:
        return {"policy": dataclasses.asdict(glue.policy(build(case, path)))}
    except (ValueError, TypeError) as error:
        return {"error": [type(error).__name__, str(error)]}


def main(tree: str, cases: str) -> None:
    import torch.distributed as dist

    sys.path.insert(0, tree)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        results = [outcome(case, Path(folder, "recipe.yaml")) for case in json.loads(Path(cases).read_text())]
    print(json.dumps(results))
    sys.stdout.flush()
    os._exit(0)  # the process group's threads have nothing left to do


if __name__ == "__main__":
    main(*sys.argv[1:])
