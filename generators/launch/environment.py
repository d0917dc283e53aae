"""What the ranks of an eval get in their environment, and why; what of it, and which versions, a report shows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.product import products
from skillgen.kernel.target import Target, discover

# a value of the user's own stays, but for those that are fixed
VARIABLES = {
    "OMP_NUM_THREADS": ("1", "the ranks of a node share its cores"),
    "PYTHONFAULTHANDLER": ("1", "a rank that crashes leaves its stack in its log"),
    "PYTHONDONTWRITEBYTECODE": ("1", "the target's tree is the user's"),
    "NCCL_DEBUG": ("WARN", "NCCL says in the log of a rank why it failed"),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": ("1", "a collective that times out ends its rank, also where a site exports 0"),
}
FIXED = ("PYTHONFAULTHANDLER", "PYTHONDONTWRITEBYTECODE", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
PRODUCT_OF = {known.module: known.name for known in products().values()}
SHOWN = "|".join(  # a pattern, at a name's start, of what a reader of the report is told
    [
        "(OMP|NCCL|TORCH_NCCL|GLOO)_",
        "CUDA_(VISIBLE_DEVICES|DEVICE_MAX_CONNECTIONS)$",
        *(f"{name}$" for name in VARIABLES),
    ]
)


def variables(backend: str, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the ranks of a run need in their environment."""
    return {
        name: value if name in FIXED else given.get(name, value)
        for name, (value, _) in VARIABLES.items()
        if "NCCL" not in name or backend == "nccl"
    }


def told(root: Path, mcore: Path | None) -> dict[str, Any]:
    """What a report tells of the trees, and which variables; the ranks, which import them, could not say it."""
    found: dict[str, Any] = {"products": list(PRODUCT_OF), "versions": {}, "variables": SHOWN}
    for tree in (root, mcore):
        try:
            target = discover(tree) if tree else None
        except SkillgenError:
            target = None
        if target is None:
            continue
        found["versions"][target.about.module] = stated(target)
        if tree is root:
            commit = git(target, "rev-parse", "HEAD")
            patched = " (patched)" if git(target, "status", "--porcelain", "-uno") else ""
            found["target"] = {
                "path": str(root),
                "version": target.version or "unknown",
                "commit": f"{commit}{patched}" if commit else None,
            }
    return found


def stated(target: Target) -> str | None:
    """The version of a tree; with the commit where the tree is a checkout of its own."""
    at = git(target, "rev-parse", "HEAD")
    return f"{target.version}+{at[:9]}" if target.version and at else target.version


def git(target: Target, *command: str) -> str:
    """What git says of a checkout, stripped; nothing of a tree that is none, whatever repository lies around it."""
    if target.git_dir is None:
        return ""
    own = ["--git-dir", str(target.git_dir), "--work-tree", str(target.root), "-c", "core.fsmonitor=false"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *own, *command], env=environment, capture_output=True, text=True
        )
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()
