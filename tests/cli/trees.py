"""Miniature Megatron-Bridge trees, written from the families' interfaces."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_dp_over_cp.sites import FAMILIES

MODEL = "models/ministral3/modeling_ministral3.py"
PROVIDER = "models/ministral3/ministral3_provider.py"
OTHERS = ("qwen25_vl", "gemma4_vl", "qwen3_vl")  # refused, not plannable yet, upgrade
FILES = {
    "__init__.py": "",
    "models/__init__.py": "",
    "models/ministral3/__init__.py": "",
    PROVIDER: '''\
"""Provider."""

from dataclasses import dataclass


@dataclass
class Ministral3ModelProvider:
    """Configuration."""

    scatter_embedding: bool = False
    spatial_merge_size: int = 2

    def provide(self):
        return None
''',
    MODEL: '''\
"""Model."""

import torch

from megatron.bridge.utils.common_utils import slice_batch_for_context_parallel


class Ministral3Model(torch.nn.Module):
    """Vision and language."""

    def __init__(self, config, vp_stage=None):
        super().__init__(config=config)
        self.pre_process = True
        self.vp_stage = vp_stage
        self.language_model = config.provide_language_model()

    def set_input_tensor(self, input_tensor):
        """For pipelines."""
        self.language_model.set_input_tensor(input_tensor)

    def forward(self, input_ids, pixel_values=None, image_sizes=None):
        """One step."""
        embeds = self.language_model.embedding(input_ids)
        if pixel_values is not None:
            rows = self.get_image_features(pixel_values, image_sizes=image_sizes).pooler_output
            embeds = self.merge(embeds, rows)
        embeds = slice_batch_for_context_parallel(embeds)
        return self.language_model(embeds)
''',
}

SECOND = {  # a second family that can be patched: qwen3_omni
    "models/qwen_omni/qwen3_omni_provider.py": '''\
"""Provider."""

from dataclasses import dataclass


@dataclass
class Qwen3OmniModelProvider:
    """Configuration."""

    spatial_merge_size: int = 2
''',
    "models/qwen_omni/modeling_qwen3_omni/thinker_model.py": '''\
"""Model."""

import torch

from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.utils import split_data_cp_rank


class Qwen3OmniThinkerModel(torch.nn.Module):
    """Vision and language."""

    def __init__(self, language_transformer_config, pg_collection=None):
        super().__init__()
        self.pg_collection = pg_collection

    def get_image_features(self, pixel_values, grid):
        """Images."""
        return self.visual(pixel_values, grid_thw=grid)

    def get_video_features(self, pixel_values, grid):
        """Videos."""
        return self.visual(pixel_values, grid_thw=grid)

    def forward(self, ids, pixels, grid, videos, video_grid, size, rank):
        """One step."""
        tp_rank = self.pg_collection.tp.rank() if self.pg_collection is not None else 0
        rows, levels = self.get_image_features(pixels, grid)
        more, _ = self.get_video_features(videos, video_grid)
        merged = self.merge(ids, rows, more, levels, tp_rank)
        return self.language_model(split_data_cp_rank(merged, size, 0, rank))
''',
}

Skillgen = Callable[..., tuple[int, dict[str, Any]]]


def write(package: Path, extra: Mapping[str, str] | None = None) -> None:
    files = {**FILES, **(extra or {})}
    for adapter in adapters(FAMILIES):
        if adapter.family in OTHERS:
            example = adapter.examples[0]
            provider = example.provider or f"class {adapter.providers[0].cls}:\n    pass\n"
            files |= {adapter.providers[0].path: provider, adapter.models[0].path: example.model}
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)


def snapshot(root: Path) -> dict[str, bytes | str]:
    """Every file, link and folder below `root` but git's own."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.startswith(".git/"):
            continue
        found[name] = f"-> {path.readlink()}" if path.is_symlink() else path.read_bytes() if path.is_file() else "dir"
    return found


def git(root: Path, *command: str) -> str:
    names = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.autocrlf=false")
    return subprocess.run(["git", *names, *command], cwd=root, check=True, capture_output=True, text=True).stdout
