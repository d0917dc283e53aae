"""The processor as far as rounding depends on it: model, vector instructions, and who multiplies matrices."""

from __future__ import annotations

import platform
import re
from functools import lru_cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# flags of Linux, on x86 and on ARM, coarsest first
VECTORS = {"avx2": "AVX2", "avx512f": "AVX512", "amx_tile": "AMX", "asimd": "NEON", "sve": "SVE", "sve2": "SVE2"}


@lru_cache(maxsize=1)
def processor() -> dict[str, str]:
    """Of this machine: `cpu`, `vector` (what PyTorch uses, of what there is) and `blas`."""
    import torch

    try:
        told = CPUINFO.read_text()
    except OSError:
        told = ""
    return {
        "cpu": model(told),
        "vector": vector(told, torch.backends.cpu.get_cpu_capability()),
        "blas": blas(torch.__config__.show()),
    }


def model(told: str) -> str:
    """The model's name; of an ARM, which has none, its number."""
    found = re.search(r"^model name\s*:\s*(.+)", told, re.MULTILINE)
    if found:
        return found[1].strip()
    number = re.search(r"^CPU part\s*:\s*(\S+)", told, re.MULTILINE)
    return f"{platform.machine()} {number[1]}" if number else platform.processor() or "unknown"


def vector(told: str, used: str) -> str:
    """What PyTorch chose of the vector instructions that the processor has."""
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)", told, re.MULTILINE)
    has = [name for flag, name in VECTORS.items() if flags and flag in flags[1].split()]
    return f"{used} of {', '.join(has)}" if has else used


def blas(built: str) -> str:
    """The library behind PyTorch's matrix products, from what it says of its build."""
    name = re.search(r"BLAS_INFO=(\w+)", built)
    version = re.search(r"Math Kernel Library Version (\S+?)-", built)
    told = name[1] if name else "unknown"
    return f"{told} {version[1]}" if version and told == "mkl" else told
