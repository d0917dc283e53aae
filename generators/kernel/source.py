"""A lazy index over the Python files of a target's package: text first, `ast` only for files that matter."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.paths import read

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

Function = ast.FunctionDef | ast.AsyncFunctionDef
_NODES = {
    kind
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and not issubclass(kind, ast.expr_context)
}
_BLOCKS = ("finalbody", "orelse", "cases", "handlers", "body")  # of a statement, the last of them first


class SourceSyntaxError(SkillgenError):
    """A file of the target that Python cannot parse."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__("syntax-error", f"cannot parse {where}: {reason}", where=where, hint="repair the file first")


class Module:
    """One parsed file: its classes, functions and where each of its names comes from."""

    def __init__(self, path: str, shown: str, name: str, text: bytes) -> None:
        self.path = path
        self.shown = shown
        self.name = name
        self.text = text
        self.tree = ast.parse(text)
        self.statements = statements(self.tree)
        self.classes = {node.name: node for node in self.statements if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in self.tree.body if isinstance(node, Function)}
        self.imports = self._imports()

    def says(self, name: str) -> bool:
        """Whether a name stands anywhere in the text: where it does not, no walk will find it."""
        return name.encode() in self.text

    def _imports(self) -> dict[str, str]:
        origins: dict[str, str] = {}
        for node in self.statements:
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
    """The Python files of a target's package as they are at one time, read and parsed at most once each.

    One command has one. Paths are posix, relative to the package.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.root = target.root
        self.package = target.package
        self.name = target.about.module
        self._prefix = target.relative(target.package)
        self._texts: dict[str, bytes] = {}
        self._modules: dict[str, Module] = {}
        self._listed: dict[str, list[str]] = {}

    def under(self, texts: Mapping[str, bytes]) -> Source:
        """The same files but for these texts, by path; what was read and parsed of the others is shared."""
        other = copy(self)
        other._texts = {**self._texts, **texts}
        other._modules = {path: module for path, module in self._modules.items() if path not in texts}
        return other

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
        if under not in self._listed:
            self._listed[under] = list(_python_files(self.package / under, f"{under}/" if under else ""))
        for path in self._listed[under]:
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
            return Module(path, shown, name, text)
    except SyntaxError as error:
        raise SourceSyntaxError(f"{shown}:{error.lineno or 1}", error.msg) from None
    except (ValueError, RecursionError) as error:  # null bytes; an expression nested too deeply
        raise SourceSyntaxError(f"{shown}:1", str(error)) from None


def _python_files(folder: str | os.PathLike[str], prefix: str) -> Iterator[str]:
    """As os.walk goes: the files of a folder, then its folders, both by name."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(".py") and entry.is_file(follow_symlinks=False):
            yield prefix + entry.name
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith((".", "__pycache__")):
            yield from _python_files(entry.path, f"{prefix}{entry.name}/")


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of nested attributes, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all below it, in the order of the code; found once for each node that is asked for."""
    below: tuple[ast.AST, ...] | None = vars(node).get("below")
    if below is None:
        below = vars(node)["below"] = _below(node)
    return [node, *below]


def _below(node: ast.AST) -> tuple[ast.AST, ...]:
    """In preorder; the context of a name is none of the code."""
    found: list[ast.AST] = []
    waiting = [node]
    while waiting:
        node = waiting.pop()
        found.append(node)
        inner: list[ast.AST] = []
        for value in vars(node).values():  # the fields are set in their order
            kind = value.__class__
            if kind is list:
                inner += [child for child in value if child.__class__ in _NODES]
            elif kind in _NODES:
                inner.append(value)
        inner.reverse()
        waiting += inner
    return tuple(found[1:])


def statements(holder: ast.AST) -> list[ast.AST]:
    """The statements in the blocks of a file or a statement, with handlers and cases, in preorder: no expressions."""
    found: list[ast.AST] = []
    waiting = [holder]
    while waiting:
        node = waiting.pop()
        found.append(node)
        fields = vars(node)
        for name in _BLOCKS:
            if fields.get(name).__class__ is list:
                waiting += reversed(fields[name])
    return found[1:]


def calls(node: ast.AST) -> list[ast.Call]:
    """Every call below a node, in the order of lines."""
    found = [child for child in walk(node) if isinstance(child, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def parameters(function: Function) -> list[str]:
    """Positional parameter names, then keyword-only ones."""
    signature = function.args
    return [arg.arg for arg in (*signature.posonlyargs, *signature.args, *signature.kwonlyargs)]
