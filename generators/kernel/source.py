"""A lazy index over the Python files of a target's package: text first, `ast` only for files that matter."""

from __future__ import annotations

import ast
import os
import re
import stat
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.paths import read

Function = ast.FunctionDef | ast.AsyncFunctionDef


class SourceSyntaxError(SkillgenError):
    """A file of the target that Python cannot parse."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__("syntax-error", f"cannot parse {where}: {reason}", where=where, hint="repair the file first")


class Module:
    """One parsed file: its classes, functions and where each of its names comes from."""

    def __init__(self, path: str, shown: str, name: str, tree: ast.Module) -> None:
        self.path = path
        self.shown = shown
        self.name = name
        self.tree = tree
        self.nodes = _index(tree)
        self.classes = {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in tree.body if isinstance(node, Function)}
        self.imports = self._imports()

    def _imports(self) -> dict[str, str]:
        origins: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    origins[local] = alias.name if alias.asname else local
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    origins[alias.asname or alias.name] = f"{self._from(node)}.{alias.name}"
        return origins

    def _from(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        keep = node.level - 1 if self.path.endswith("__init__.py") else node.level
        parts = self.name.split(".")
        return ".".join([*parts[: len(parts) - keep], *([node.module] if node.module else [])])

    def origin(self, node: ast.AST) -> str | None:
        """Dotted name of an expression with its import resolved: `F.relu` is `torch.nn.functional.relu`."""
        name = dotted(node)
        if name is None:
            return None
        head, dot, rest = name.partition(".")
        if head in self.imports:
            return self.imports[head] + dot + rest
        return f"{self.name}.{name}" if head in self.classes or head in self.functions else name

    def where(self, node: ast.AST | None = None) -> str:
        return f"{self.shown}:{getattr(node, 'lineno', 1)}"


class Method(NamedTuple):
    """A method as a class has it, own or inherited from a class of the same package."""

    module: Module
    cls: ast.ClassDef
    node: Function


class Source:
    """The Python files of one package, read and parsed at most once each. Paths are posix, relative to the package."""

    def __init__(self, root: Path, package: Path) -> None:
        self.root = root
        self.package = package
        self.name = f"megatron.{package.name}" if package.parent.name == "megatron" else package.name
        self._prefix = package.relative_to(root).as_posix()
        self._texts: dict[str, bytes] = {}
        self._modules: dict[str, Module] = {}

    def overlay(self, path: str, text: bytes) -> None:
        """Read `text` instead of what the disk has, from now on."""
        self._texts[path] = text
        self._modules.pop(path, None)

    def shown(self, path: str) -> str:
        """The path relative to the target's root."""
        return f"{self._prefix}/{path}" if self._prefix != "." else path

    def has(self, path: str) -> bool:
        return path in self._texts or (self.package / path).is_file()

    def text(self, path: str) -> bytes:
        if path not in self._texts:
            self._texts[path] = read(self.package / path, shown=self.shown(path))
        return self._texts[path]

    def files(self, under: str = "", matching: re.Pattern[bytes] | None = None) -> Iterator[str]:
        """Regular files below a folder in a fixed order; hidden and cache folders are not entered."""
        for folder, names, files in os.walk(self.package / under):
            names[:] = sorted(name for name in names if not name.startswith((".", "__pycache__")))
            for file in sorted(files):
                full = Path(folder, file)
                if file.endswith(".py") and stat.S_ISREG(full.lstat().st_mode):
                    path = full.relative_to(self.package).as_posix()
                    if matching is None or matching.search(self.text(path)):
                        yield path

    def module(self, path: str) -> Module:
        if path not in self._modules:
            parts = [self.name, *path.removesuffix(".py").removesuffix("__init__").rstrip("/").split("/")]
            name = ".".join(part for part in parts if part)
            self._modules[path] = _parse(path, self.shown(path), name, self.text(path))
        return self._modules[path]

    def locate(self, origin: str, depth: int = 4) -> tuple[Module, str] | None:
        """The module of this package that defines a dotted name, re-exports followed, and the name in it."""
        prefix, _, name = origin.rpartition(".")
        if not (prefix + ".").startswith(self.name + "."):
            return None
        path = prefix[len(self.name) + 1 :].replace(".", "/")
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if path and self.has(file):
                module = self.module(file)
                if name in module.classes or name in module.functions:
                    return module, name
                if name in module.imports and depth:
                    return self.locate(module.imports[name], depth - 1)
        return None

    def find_class(self, origin: str) -> tuple[Module, ast.ClassDef] | None:
        found = self.locate(origin)
        return (found[0], found[0].classes[found[1]]) if found and found[1] in found[0].classes else None

    def find_function(self, origin: str) -> tuple[Module, Function] | None:
        found = self.locate(origin)
        return (found[0], found[0].functions[found[1]]) if found and found[1] in found[0].functions else None

    def lineage(self, module: Module, cls: ast.ClassDef) -> list[tuple[Module, ast.ClassDef]]:
        """The class and its bases within this package, nearest first; a base whose file is broken is left out."""
        line = [(module, cls)]
        for base in cls.bases:
            origin = module.origin(base.value if isinstance(base, ast.Subscript) else base)
            try:
                found = self.find_class(origin) if origin else None
            except SourceSyntaxError:
                continue
            if found:
                line += [entry for entry in self.lineage(*found) if entry not in line]
        return line

    def methods(self, module: Module, cls: ast.ClassDef) -> dict[str, Method]:
        """Every method the class has, its own before inherited ones."""
        methods: dict[str, Method] = {}
        for where, owner in self.lineage(module, cls):
            for node in owner.body:
                if isinstance(node, Function):
                    methods.setdefault(node.name, Method(where, owner, node))
        return methods


@lru_cache(maxsize=128)  # of what one process reads again and again: a server of commands, a test
def _parse(path: str, shown: str, name: str, text: bytes) -> Module:
    try:
        with warnings.catch_warnings(action="ignore"):  # the target's own escapes are not our business
            return Module(path, shown, name, ast.parse(text))
    except SyntaxError as error:
        raise SourceSyntaxError(f"{shown}:{error.lineno or 1}", error.msg) from None
    except (ValueError, RecursionError) as error:  # null bytes; an expression nested too deeply
        raise SourceSyntaxError(f"{shown}:1", str(error)) from None


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of nested attributes, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all below it, in the order of the code; the node is of a tree that `Source` parsed."""
    nodes: list[ast.AST]
    nodes, start, end = vars(node)["span"]
    return nodes[start:end]


def _index(tree: ast.Module) -> list[ast.AST]:
    """All nodes in preorder. Each learns its span of the list, which makes every later walk a slice of it."""
    nodes: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        start = len(nodes)
        nodes.append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                for child in value:
                    if isinstance(child, ast.AST):
                        visit(child)
            elif isinstance(value, ast.AST) and name != "ctx":
                visit(value)
        vars(node)["span"] = (nodes, start, len(nodes))

    visit(tree)
    return nodes


def calls(node: ast.AST) -> list[ast.Call]:
    """Every call below a node, in the order of lines."""
    found = [child for child in walk(node) if isinstance(child, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def parameters(function: Function) -> list[str]:
    """Positional parameter names, then keyword-only ones."""
    signature = function.args
    return [arg.arg for arg in (*signature.posonlyargs, *signature.args, *signature.kwonlyargs)]
