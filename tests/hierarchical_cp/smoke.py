"""The cases of the eval that prove most in least time, and a fault that one of them must catch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.releases import original, patched

FAULT, CASE = "validation-dropped", "checks: refused: three sizes"
SCRIPT = Path(__file__).with_name("forked_eval.py")


def spec(folder: Path) -> dict[str, Any]:
    tree = patched("bridge-0.6.2", folder, "hierarchical-cp", "--no-lint")
    options = {"families": ["groups", "checks"], "kinds": ["groups", "checks"], "nproc": 4, "limit": 20}
    return options | {"target": str(tree), "mcore": str(original("core-0.19.2"))}
