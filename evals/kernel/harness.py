"""Import a target's modeling files without its heavy package initialisers, and say what stood in for what."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from skillgen.evals.kernel.inert import Inert, InertPackages

BRIDGE = "megatron.bridge"
SHELLS = ("", ".models", ".models.common", ".utils", ".training", ".training.utils")


class Skip(Exception):
    """What a case needs is not there; the message says what."""


def or_skip(action: Callable[[], object], optional: Sequence[str]) -> None:
    """Run what needs packages that a machine may lack: without one of them Skip, and any other error is an error."""
    try:
        action()
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in optional:
            raise
        raise Skip(f"{package} is not here, without which it does not run: {error}") from error


class TargetHarness:
    """One process's view of a target: its import path, package shells, stand-ins, the runtime that was vendored."""

    package: ClassVar[str]  # what the target is imported as
    runtime_module: ClassVar[str]  # below the package
    technique: ClassVar[str]  # that brings the runtime
    versions: ClassVar[tuple[str, ...]] = ("transformers", "triton")  # modules whose version the report tells
    optional: ClassVar[tuple[str, ...]] = ()  # packages that a family may want, and a machine may lack

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
    optional = ("transformer_engine", "mamba_ssm", "causal_conv1d", "flash_attn", "triton", "qwen_vl_utils")

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
