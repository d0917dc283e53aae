"""Runs of the eval on a patched release: few cases, forked ranks, imports made once for all runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tp_dp.targets import TECHNIQUE, original, release, run

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
    path = folder / "specs.json"
    path.write_text(json.dumps(specs))
    done = subprocess.run([sys.executable, str(FORKED), str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found
