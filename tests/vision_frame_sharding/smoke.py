"""The cases of the eval that prove most in least time, and a fault that one of them must catch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.releases import patched

FAULT, CASE = "frame-order", "qwen3_5_moe recipe: CP 2, images and a 4-frame video"


def spec(folder: Path) -> dict[str, Any]:
    tree = patched("automodel-0.5.0", folder, "vision-frame-sharding", "--family", "qwen3_5_moe")
    options: dict[str, Any] = {"target": str(tree), "mcore": None, "families": ["qwen3_5_moe"], "kinds": ["recipe"]}
    return options | {"modules": ["recipes.vlm.finetune", "recipes.vlm.kd"], "limit": 10}
