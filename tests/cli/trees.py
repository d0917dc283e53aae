"""Miniature Megatron-Bridge trees, written from the families' interfaces."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skillgen.adapters import adapters

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

Skillgen = Callable[..., tuple[int, dict[str, Any]]]


def write(package: Path) -> None:
    files = dict(FILES)
    for adapter in adapters("megatron-bridge"):
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
