"""What the ranks of an eval get in their environment, and why; what of it a report shows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# a value of the user's own stays, but for those that are fixed
VARIABLES = {
    "OMP_NUM_THREADS": ("1", "the ranks of a node share its cores"),
    "PYTHONFAULTHANDLER": ("1", "a rank that crashes leaves its stack in its log"),
    "PYTHONDONTWRITEBYTECODE": ("1", "the target's tree is the user's"),
    "NCCL_DEBUG": ("WARN", "NCCL says in the log of a rank why it failed"),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": ("1", "a collective that times out ends its rank, also where a site exports 0"),
}
FIXED = ("PYTHONFAULTHANDLER", "PYTHONDONTWRITEBYTECODE", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
SHOWN = re.compile(r"(OMP|NCCL|TORCH_NCCL|GLOO)_|CUDA_(VISIBLE_DEVICES|DEVICE_MAX_CONNECTIONS)$")


def variables(backend: str, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the ranks of a run need in their environment."""
    return {
        name: value if name in FIXED else given.get(name, value)
        for name, (value, _) in VARIABLES.items()
        if "NCCL" not in name or backend == "nccl"
    }


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """What a reader of the report is told of the environment."""
    return {name: environment[name] for name in sorted(environment) if name in VARIABLES or SHOWN.match(name)}
