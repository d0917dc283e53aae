"""The cases of the eval that prove most in least time, and a fault that one of them must catch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.vision_tp_dp import evaluated

CASE, GROUPS = "parity: 2x2 in TP 4 CP 1, sequence parallel: a video and images", "groups: 2x2 in TP 4 CP 1"
FAULT = "sum-not-slice"
SCRIPT = evaluated.FORKED


def spec(folder: Path) -> dict[str, Any]:
    return evaluated.spec(evaluated.patched(folder), [CASE, GROUPS])
