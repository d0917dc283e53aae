"""The cases of the eval that prove most in least time, and a fault that one of them must catch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.releases import small

FAULT, CASE = "other-order", "qwen3_5_moe parity: CP 2, 4 query heads on 2"


def spec(folder: Path) -> dict[str, Any]:
    return {"target": str(small(folder)), "mcore": None, "families": ["qwen3_5_moe"], "kinds": [], "limit": 20}
