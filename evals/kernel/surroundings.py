"""Import what a case needs of a target where its GPU-only neighbours are absent: inert stand-ins around real code."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from skillgen.evals.kernel.harness import BRIDGE, TargetHarness
from skillgen.evals.kernel.inert import Inert, InertPackages
from skillgen.evals.kernel.stand_in import VERSION, DotProductAttention

KEPT = ("training.initialize", "training.config", "training.utils", "utils", "models.transformer_config")
DROPPED = ("training.utils.config_utils",)  # wants omegaconf and transformers, for a base class
OURS = ("training.hierarchical", "training.eval_context_parallel_rebinding")
LIBRARIES = ("torch", "numpy", "packaging", "typing_extensions", *sys.stdlib_module_names)


class InertNeighbours(InertPackages):
    """While entered, what the target's training modules import beside megatron-core is inert, unless it is `KEPT`."""

    def __init__(self, *kept: str) -> None:
        self.absent = ()
        self.kept = tuple(f"{BRIDGE}.{name}" for name in (*KEPT, *OURS, *kept))
        self.dropped = tuple(f"{BRIDGE}.{name}" for name in DROPPED)
        self.made: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not self._wants(name) or not _importer(sys._getframe(1)).startswith(BRIDGE):
            return None
        self.made.append(name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def _wants(self, name: str) -> bool:
        if name.startswith(f"{BRIDGE}."):
            parent = any(kept.startswith(f"{name}.") for kept in self.kept)
            return name in self.dropped or not (parent or name.startswith(self.kept))
        return (
            name.split(".")[0] not in LIBRARIES
            and not name.startswith(("megatron.core", BRIDGE))
            and name != "megatron"
        )

    def __enter__(self) -> InertNeighbours:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)
        for name in self.made:
            sys.modules.pop(name, None)


def _importer(frame: FrameType | None) -> str:
    """The module whose import statement is being run."""
    own = (__name__, "importlib")
    while frame is not None and frame.f_globals.get("__name__", "").startswith(own):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""


def bridge_module(harness: TargetHarness, name: str, *kept: str) -> types.ModuleType:
    """A module below megatron.bridge, real together with what is `KEPT`; the rest of Bridge around it is inert."""
    full = f"{BRIDGE}.{name}"
    if full in sys.modules:
        return sys.modules[full]
    models = sys.modules.get(f"{BRIDGE}.models")
    if models is not None:
        models.__getattr__ = _inert_name  # type: ignore[method-assign]
    with InertNeighbours(*kept) as neighbours:
        module = importlib.import_module(full)
    around = sorted({".".join(made.split(".")[:3]) for made in neighbours.made})
    harness.stands_in(f"inert modules around {full}: {', '.join(around)}")
    return module


def _inert_name(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Inert


def recorded_extension(harness: TargetHarness) -> types.ModuleType:
    """megatron-core's Transformer Engine extension, run anew on a stand-in whose attention is our reference."""
    name = "megatron.core.extensions.transformer_engine"
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    spec = importlib.util.spec_from_file_location(f"{name}_on_a_stand_in", found.origin)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with InertPackages("transformer_engine", "triton"), _version_told(VERSION):
        engine = importlib.import_module("transformer_engine.pytorch")
        engine.DotProductAttention = DotProductAttention  # type: ignore[attr-defined]
        sys.modules["transformer_engine"].__version__ = VERSION  # type: ignore[attr-defined]
        spec.loader.exec_module(module)
    module.TEDotProductAttention.cp_stream = object()  # there is no CUDA stream to make
    harness.stands_in(f"transformer_engine {VERSION}: records what it is given, computes our reference of attention")
    return module


@contextmanager
def _version_told(version: str) -> Iterator[None]:
    """megatron-core sees this version of Transformer Engine, as long as the extension is being run."""
    from packaging.version import Version

    utils = importlib.import_module("megatron.core.utils")
    names = ("get_te_version", "is_te_min_version")
    before = {name: getattr(utils, name) for name in names}
    told = Version(version)
    utils.get_te_version = lambda: told  # type: ignore[attr-defined]

    def at_least(wanted: str, check_equality: bool = True) -> bool:
        return told >= Version(wanted) if check_equality else told > Version(wanted)

    utils.is_te_min_version = at_least  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(utils, name, original)
