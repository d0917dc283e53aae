"""Run in a process of its own, on a patched tree: the recipe's own context, on four ranks of CP 2 x TP 2.

Usage: python spans.py TREE
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from tests.vision_frame_sharding.configured import load

YAML = """
distributed:
  multimodal: {{vision: {{frame_sharding: {{enabled: true, mesh_dims: {dims}, min_tokens: 0, min_frames: 0}}}}}}
"""


class Tower(nn.Module):
    """A Qwen tower as `maybe_distribute_visual` sees it: a token is the mean of four patches."""

    spatial_merge_size = 2
    config = mock.MagicMock(hidden_size=8, intermediate_size=8)

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.rows: list[int] = []

    def forward(self, hidden_states: Any, grid_thw: Any, return_dict: bool = True) -> Any:
        self.rows.append(len(hidden_states))
        output = Output()
        output.pooler_output = self.scale * hidden_states.reshape(-1, 4, hidden_states.shape[1]).mean(1)
        return output


class Output:
    """What a tower returns."""

    pooler_output: Any


def recipe(folder: str, dims: str, mesh: Any) -> Any:
    """The fine-tuning recipe with the policy that the target's own configuration path makes of a YAML file."""
    path = Path(folder, f"{dist.get_rank()}.yaml")
    path.write_text(YAML.format(dims=dims))
    config = load("components.config._arg_parser").parse_args_and_load_config(argv=["--config", str(path)])
    section = load("recipes._dist_utils").parse_distributed_section(config.distributed.to_dict())
    made = object.__new__(load("recipes.vlm.finetune").FinetuneRecipeForVLM)
    made.__dict__.update(device_mesh=mesh)
    made.__dict__.update(cp_vision_frame_sharding=section["strategy_config"].multimodal.vision.frame_sharding)
    return made


def encode(made: Any, tower: Tower) -> Any:
    pixels = torch.arange(3072.0, dtype=torch.float64).reshape(1536, 2)
    grid = torch.tensor([[1, 16, 16], [3, 16, 16], [1, 16, 32]])
    with made._cp_vision_frame_sharding_context():
        return load("components.distributed.vision_frame_sharding").maybe_distribute_visual(tower, pixels, grid)


def rank(number: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=4)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("cp", "tp"))
    upstream = load("components.distributed.cp_vision_frame_shard")
    narrow, wide = (recipe(folder, dims, mesh) for dims in ("[cp]", "[cp, tp]"))
    expected = encode(recipe(folder, "[cp]", None), Tower()).pooler_output

    with narrow._cp_vision_frame_sharding_context():
        scope = upstream.published_scope()
        assert (scope.group, scope.spans_only_cp) == (mesh["cp"].get_group(), True)
    groups = []
    for _ in range(2):
        with wide._cp_vision_frame_sharding_context():
            scope = upstream.published_scope()
            assert dist.get_process_group_ranks(scope.group) == [0, 1, 2, 3] and not scope.spans_only_cp
            groups.append(scope.group)
        assert upstream.published_scope() is None
    assert groups[0] is groups[1], "the group is made once"

    for made, most in ((narrow, 1024), (wide, 512)):
        tower = Tower().requires_grad_(False)
        torch.testing.assert_close(encode(made, tower).pooler_output, expected)
        assert tower.rows[0] <= most, tower.rows
    encode(narrow, Tower()).pooler_output.sum().backward()
    for sharding in (load("components.distributed.vision_frame_sharding"), upstream):
        with wide._cp_vision_frame_sharding_context():
            try:
                sharding.maybe_distribute_visual(Tower(), torch.ones(4, 2), torch.tensor([[1, 2, 2]]))
            except ValueError:
                continue
        raise AssertionError(f"{sharding.__name__} accepts a trainable tower over CP x TP")
    for dims in ("[tp]", "[tp, cp]", "[]"):
        try:
            recipe(folder, dims, mesh)
        except ValueError as error:
            assert 'mesh_dims currently supports only ["cp"] and ["cp", "tp"]' in str(error)
            continue
        raise AssertionError(f"{dims} is accepted")
    print("ok")
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    load("recipes.vlm.finetune")  # once, not in every rank
    with tempfile.TemporaryDirectory() as work:
        mp.start_processes(rank, args=(work,), nprocs=4, start_method="fork")
