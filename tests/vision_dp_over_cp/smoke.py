"""The cases of the eval that prove most in least time, and a fault that one of them must catch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.releases import original, patched

FAULT, CASE = "order", "ministral3 parity: CP 2, 3 images"


def spec(folder: Path) -> dict[str, Any]:
    tree = patched("bridge-0.6.2", folder, "vision-dp-over-cp", "--family", "ministral3")
    mcore = str(original("core-0.19.2"))
    return {"target": str(tree), "mcore": mcore, "families": ["ministral3"], "kinds": ["parity"], "limit": 3}
