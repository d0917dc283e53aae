"""What a reader needs to repeat a run: versions, the machine, and what the launcher told of the target."""

from __future__ import annotations

import os
import platform
import re
import sys
from typing import Any

from skillgen.evals.kernel.harness import TargetHarness
from skillgen.evals.kernel.processor import processor


def environment(harness: TargetHarness, backend: str, told: dict[str, Any]) -> dict[str, Any]:
    """`told` is what the launcher read of the trees: the ranks see packages, which know no commit of their own."""
    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    versions |= {package: version(package, told) for package in harness.versions}
    gpu = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if backend == "nccl" else []
    runtime = sys.modules.get(harness.runtime_name)
    return {
        "versions": versions,
        "platform": platform.platform(),
        **processor(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "threads_per_rank": torch.get_num_threads(),
        "target": {
            "path": str(harness.root),
            "version": "unknown",
            "commit": None,
            **told.get("target", {}),
            "runtime": getattr(runtime, "__version__", None),
        },
        "variables": {name: os.environ[name] for name in sorted(os.environ) if _shown(name, told)},
    }


def version(package: str, told: dict[str, Any]) -> str:
    """As its tree states it; a product's own word ends in the commit of whatever repository lies around it."""
    module = sys.modules.get(package)
    if module is None:
        return "absent"
    said = getattr(module, "__version__", None)
    if said and package in told.get("products", ()):
        said = said.partition("+")[0]
    return told.get("versions", {}).get(package) or said or "present"


def _shown(name: str, told: dict[str, Any]) -> bool:
    return bool(re.match(told.get("variables", "$"), name))
