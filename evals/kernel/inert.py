"""Stand-ins for packages that are not there: imported by name, used by no case."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any


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
