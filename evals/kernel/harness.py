"""Import a target's modeling files without its heavy package initialisers, and say what stood in for what."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pkgutil
import platform
import sys
import types
import typing
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from skillgen.evals.kernel.processor import processor
from skillgen.kernel.target import discover
from skillgen.launch.environment import PRODUCT_OF, git, version

BRIDGE = "megatron.bridge"
SHELLS = ("", ".models", ".models.common", ".utils", ".training", ".training.utils")


class Skip(Exception):
    """What a case needs is not there; the message says what."""


class TargetHarness:
    """One process's view of a target: its import path, package shells, stand-ins, the runtime that was vendored."""

    package: ClassVar[str]  # what the target is imported as
    runtime_module: ClassVar[str]  # below the package
    technique: ClassVar[str]  # that brings the runtime
    versions: ClassVar[tuple[str, ...]] = ("transformers", "triton")  # modules whose version the report tells

    def __init__(self, target_root: str) -> None:
        self.root = Path(target_root).resolve()
        folder = Path(*self.package.split("."))
        self.source = next((p for p in (self.root / "src", self.root) if (p / folder).is_dir()), None)
        if self.source is None:
            raise Skip(f"{target_root} holds no {folder.as_posix()}")
        self.stand_ins: list[str] = []
        sys.path.insert(0, str(self.source))
        importlib.invalidate_caches()

    def shells(self, *packages: str) -> None:
        """Register packages of the target by path alone; their initialisers do not run."""
        for package in packages:
            name = self.package + package
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
        """Import a module of the target by its name below the package."""
        return importlib.import_module(f"{self.package}.{module}")

    @property
    def runtime_name(self) -> str:
        """The vendored runtime's import name."""
        return f"{self.package}.{self.runtime_module}"

    def runtime(self) -> types.ModuleType:
        """The vendored runtime, all its modules loaded; Skip if the target has none."""
        try:
            package = importlib.import_module(self.runtime_name)
        except ModuleNotFoundError as error:
            raise Skip(f"the target has no {self.runtime_name}: apply {self.technique} to it first") from error
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.runtime_name}.{module.name}")
        return package

    def before_tests(self) -> None:
        """Let the target's own tests be read: what stands in for the length of a run of them."""
        return

    def stands_in(self, what: str) -> None:
        """Note a stand-in for the report, once."""
        if what not in self.stand_ins:
            self.stand_ins.append(what)


class Harness(TargetHarness):
    """Megatron-Bridge: without its package initialisers, which want Transformer Engine."""

    package = BRIDGE
    runtime_module = "models.common.vision_sharding"
    technique = "vision-dp-over-cp"
    versions = ("transformers", "megatron.core", "transformer_engine", "triton")

    def __init__(self, target_root: str, mcore: str | None = None) -> None:
        super().__init__(target_root)
        if mcore:
            sys.path.insert(1, str(Path(mcore).resolve()))
        self._backport_override()
        self._leave_compiled_functions_eager()
        self._stand_in_for_triton()
        self.shells(*SHELLS)

    def before_tests(self) -> None:
        """Tests want the target's packages with their initialisers."""
        from skillgen.evals.kernel.upstream_bridge import before_tests

        before_tests(self.package)

    def _backport_override(self) -> None:
        if not hasattr(typing, "override"):
            import typing_extensions

            typing.override = typing_extensions.override  # type: ignore[attr-defined]
            self.stand_ins.append("typing.override from typing_extensions (Python 3.11)")

    def _leave_compiled_functions_eager(self) -> None:
        """megatron-core compiles small fused functions at import; loading the compiler alone costs 8 s per rank."""
        import torch

        torch.compile = lambda model=None, **_: model if model is not None else Inert  # type: ignore[assignment]
        self.stand_ins.append("torch.compile leaves its function eager")

    def _stand_in_for_triton(self) -> None:
        """megatron-core imports triton at module level for GPU kernels that no CPU case calls."""
        if importlib.util.find_spec("triton"):
            return
        self.stand_ins.append("inert module: triton (GPU kernels, never called)")
        with InertPackages("triton"):
            importlib.import_module("megatron.core.transformer")


class _Anything(type):
    """Calling a class of it hands a lone callable back, as a decorator does, and else the class; so does any name."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.__dict__.get("inert"):
            return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else cls
        return super().__call__(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert

    def __contains__(cls, item: object) -> bool:
        return False


class Inert(metaclass=_Anything):
    """What an inert module has under every name: a decorator, a base class, an annotation, a constant."""

    inert = True


class _InertModule(types.ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert


def inert_module(name: str) -> types.ModuleType:
    """A stand-in for a module that is imported for names which are never used."""
    module = _InertModule(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return module


def installed(name: str) -> bool:
    """Whether a package is there; a plain folder of that name, as tests have them, is none."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


class InertPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """While entered, packages that are not installed import as inert modules, whatever lies below them.

    A dotted name is a module below a package that is there.
    """

    def __init__(self, *names: str) -> None:
        self.absent = tuple(name for name in names if name not in sys.modules and not installed(name))

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if self.stands_for(name) else None

    def stands_for(self, name: str) -> bool:
        """Whether a module is one of the absent, or lies below one."""
        return any(name == absent or name.startswith(f"{absent}.") for absent in self.absent)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _InertModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []

    def __enter__(self) -> InertPackages:
        sys.meta_path.insert(0, self)  # a folder of the same name would else be taken for the package
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever asks later whether a package is there must hear that it is not."""
        sys.meta_path.remove(self)
        for name in list(filter(self.stands_for, sys.modules)):
            del sys.modules[name]


def environment(harness: TargetHarness | None, backend: str) -> dict[str, Any]:
    """What a reader needs to repeat the run."""
    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in harness.versions if harness is not None else TargetHarness.versions:
        module = sys.modules.get(package)
        versions[package] = (version(module) or "present") if module else "absent"
    gpu = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if backend == "nccl" else []
    record: dict[str, Any] = {
        "versions": versions,
        "platform": platform.platform(),
        **processor(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "threads_per_rank": torch.get_num_threads(),
    }
    if harness is not None:
        record["target"] = target_record(harness)
    return record


@lru_cache(maxsize=1)
def target_record(harness: TargetHarness) -> dict[str, Any]:
    """Path, version, commit (with a dirty mark) and runtime version of the target."""
    target = discover(harness.root, PRODUCT_OF[harness.package])
    record: dict[str, Any] = {"path": str(harness.root), "version": target.version or "unknown"}
    commit = git(target, "rev-parse", "HEAD")
    patched = " (patched)" if git(target, "status", "--porcelain", "-uno") else ""
    record["commit"] = f"{commit}{patched}" if commit else None
    runtime = sys.modules.get(harness.runtime_name)
    record["runtime"] = getattr(runtime, "__version__", None)
    return record
