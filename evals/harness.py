"""Import a target's modeling files without its heavy package initialisers, and say what stood in for what."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import platform
import subprocess
import sys
import types
import typing
from functools import lru_cache
from pathlib import Path
from typing import Any

BRIDGE = "megatron.bridge"
SHELLS = ("", ".models", ".models.common", ".utils", ".training", ".training.utils")
RUNTIME = f"{BRIDGE}.models.common.vision_sharding"


class Skip(Exception):
    """What a case needs is not there; the message says what."""


class Harness:
    """One process's view of a target: package shells, stand-ins, imports."""

    def __init__(self, target_root: str, mcore: str | None = None) -> None:
        self.root = Path(target_root).resolve()
        self.source = next((p for p in (self.root / "src", self.root) if (p / "megatron" / "bridge").is_dir()), None)
        if self.source is None:
            raise Skip(f"{target_root} holds no megatron/bridge")
        self.stand_ins: list[str] = []
        for folder in [mcore] if mcore else []:
            sys.path.insert(0, str(Path(folder).resolve()))
        sys.path.insert(0, str(self.source))
        importlib.invalidate_caches()
        self._backport_override()
        self._leave_compiled_functions_eager()
        self._stand_in_for_triton()
        self.shells(*SHELLS)

    def shells(self, *packages: str) -> None:
        """Register packages under megatron.bridge by path alone; their initialisers do not run."""
        for package in packages:
            name = BRIDGE + package
            folder = self.source.joinpath(*name.split("."))  # type: ignore[union-attr]
            if name in sys.modules or not folder.is_dir():
                continue
            shell = types.ModuleType(name)
            shell.__path__ = [str(folder)]
            shell.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            shell.__spec__.submodule_search_locations = shell.__path__
            sys.modules[name] = shell
            parent, _, leaf = name.rpartition(".")
            if parent in sys.modules:
                setattr(sys.modules[parent], leaf, shell)
            self.stand_ins.append(f"package shell (initialiser skipped): {name}")

    def load(self, module: str) -> types.ModuleType:
        """Import a module of the target by its name below megatron.bridge."""
        return importlib.import_module(f"{BRIDGE}.{module}")

    def runtime(self) -> types.ModuleType:
        """The vendored runtime, all its modules loaded; Skip if the target has none."""
        try:
            package = importlib.import_module(RUNTIME)
        except ModuleNotFoundError as error:
            raise Skip(f"the target has no {RUNTIME}: apply vision-dp-over-cp to it first") from error
        for name in ("plan", "gather", "agree", "forms", "api"):
            importlib.import_module(f"{RUNTIME}.{name}")
        return package

    def stands_in(self, what: str) -> None:
        """Note a stand-in for the report, once."""
        if what not in self.stand_ins:
            self.stand_ins.append(what)

    def _backport_override(self) -> None:
        if not hasattr(typing, "override"):
            import typing_extensions

            typing.override = typing_extensions.override  # type: ignore[attr-defined]
            self.stand_ins.append("typing.override from typing_extensions (Python 3.11)")

    def _leave_compiled_functions_eager(self) -> None:
        """megatron-core compiles small fused functions at import; loading the compiler alone costs 8 s per rank."""
        import torch

        torch.compile = lambda model=None, **_: model if model is not None else _nothing
        self.stand_ins.append("torch.compile leaves its function eager")

    def _stand_in_for_triton(self) -> None:
        """megatron-core imports triton at module level for GPU kernels that no CPU case calls."""
        if importlib.util.find_spec("triton"):
            return
        for name in ("triton", "triton.language"):
            module = _Inert(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            module.__path__ = []
            sys.modules[name] = module
        sys.modules["triton"].language = sys.modules["triton.language"]  # type: ignore[attr-defined]
        self.stand_ins.append("inert module: triton (GPU kernels, never called)")
        importlib.import_module("megatron.core.transformer")
        for name in ("triton", "triton.language"):  # torch must go on seeing that there is none
            del sys.modules[name]


class _Inert(types.ModuleType):
    """A module whose names exist and do nothing: decorators hand their function back, everything else is inert."""

    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def inert_module(name: str) -> types.ModuleType:
    """A stand-in for a module that is imported for names which are never used."""
    module = _Inert(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return module


def _nothing(*args: Any, **kwargs: Any) -> Any:
    return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else _nothing


def environment(harness: Harness | None, backend: str) -> dict[str, Any]:
    """What a reader needs to repeat the run."""
    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("transformers", "megatron.core", "transformer_engine", "triton"):
        module = sys.modules.get(package)
        versions[package] = getattr(module, "__version__", None) or ("present" if module else "absent")
    gpu = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if backend == "nccl" else []
    record: dict[str, Any] = {
        "versions": versions,
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "threads_per_rank": torch.get_num_threads(),
    }
    if harness is not None:
        record["target"] = target_record(harness)
    return record


@lru_cache(maxsize=1)
def target_record(harness: Harness) -> dict[str, Any]:
    """Path, version, commit (with a dirty mark) and runtime version of the target."""
    info = harness.load("package_info")
    record = {"path": str(harness.root), "version": getattr(info, "__version__", "unknown"), "commit": None}
    if (harness.root / ".git").exists():
        git = ["git", "-C", str(harness.root)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        dirty = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True)
        if commit.returncode == 0:
            record["commit"] = commit.stdout.strip() + (" (patched)" if dirty.stdout.strip() else "")
    runtime = sys.modules.get(RUNTIME)
    record["runtime"] = getattr(runtime, "__version__", None)
    return record


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
