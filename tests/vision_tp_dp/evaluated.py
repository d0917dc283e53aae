"""Runs of the eval on a patched release: few cases, forked ranks, imports made once for all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.forking import forked
from tests.vision_tp_dp.targets import TECHNIQUE, original, release, run

FORKED = Path(__file__).with_name("forked_eval.py")


def patched(folder: Path) -> Path:
    """Bridge 0.6.2 with the patch."""
    tree = release("bridge-0.6.2", folder)
    assert run("apply", tree) == 0
    return tree


def spec(tree: Path, cases: list[str], **changes: Any) -> dict[str, Any]:
    """A run of some cases, each "kind: name"."""
    kinds = sorted({case.partition(":")[0] for case in cases})
    options = {"technique": TECHNIQUE, "target": str(tree), "mcore": str(original("core-0.19.2")), "backend": "gloo"}
    options |= {"families": ["qwen3_vl"], "kinds": kinds, "only": cases, "mutate": None, "baseline": None}
    return options | {"nproc": 4, "limit": 10, "timeout": 60} | changes


def statuses(folder: Path, specs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """By run, the status of each case."""
    found: list[dict[str, str]] = forked(folder, specs, script=FORKED)
    return found
