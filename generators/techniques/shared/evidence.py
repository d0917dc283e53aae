"""Questions that more than one technique asks of a target's code. An answer is the node that proves it, or None."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skillgen.kernel.source import Module, calls, dotted, walk

ENCODER = re.compile(
    r"visual|vision_(tower|model|encoder|backbone)|image_encoder|encode_images?|get_(image|video)_features"
)
PIXELS = re.compile(r"pixel|image|video|frames|patches|grid_thw")


class Fact(NamedTuple):
    """A node and the file it stands in."""

    module: Module
    node: ast.AST

    @property
    def where(self) -> str:
        return self.module.where(self.node)


def last_name(node: ast.AST) -> str:
    """`c` of a dotted `a.b.c`."""
    return (dotted(node) or "").rpartition(".")[2]


def named_calls(function: ast.AST, name: str) -> list[ast.Call]:
    """The calls of a dotted name in a function."""
    return [call for call in calls(function) if dotted(call.func) == name]


def import_of(module: Module, suffix: str) -> Fact | None:
    """The import statement that brings in a module whose dotted name ends so."""
    for node in module.statements if module.says(suffix.rpartition(".")[2]) else ():
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module or ''}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        if any(f".{name}".endswith("." + suffix) for name in names):
            return Fact(module, node)
    return None


def use_of(module: Module, within: ast.AST, name: str) -> Fact | None:
    """The first place where an identifier is read, set, declared or passed; prose and imports do not count."""
    for node in walk(within) if module.says(name) else ():
        if name in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "arg", None)):
            return Fact(module, node)
    return None


def encoder_like(module: Module) -> Iterator[tuple[ast.ClassDef, list[Fact]]]:
    """Classes that call something named like a vision encoder on something named like pixels."""
    for cls in module.classes.values():
        found = []
        for call in calls(cls):
            name = (dotted(call.func) or "").split(".")
            if name[0] == "self" and ENCODER.fullmatch(name[-1].lstrip("_")):
                given = [*(keyword.arg for keyword in call.keywords), *names_in(call.args), *names_in(call.keywords)]
                if any(map(PIXELS.search, filter(None, given))):
                    found.append(Fact(module, call))
        if found:
            yield cls, found


def names_in(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Identifiers and attributes below some nodes; empty for every other node."""
    for node in nodes:
        for child in walk(node):
            yield getattr(child, "id", None) or getattr(child, "attr", None) or ""


def resembling(module: Module, within: ast.AST, name: str) -> list[Fact]:
    """Calls whose last name is the one sought, or that of an encoder: where it may have gone."""
    sought = name.rpartition(".")[2]
    named = [(call, last_name(call.func)) for call in calls(within)]
    return [Fact(module, call) for call, last in named if last == sought or ENCODER.fullmatch(last.lstrip("_"))]


def similar(module: Module, name: str, *kinds: type[ast.AST]) -> list[Fact]:
    """Definitions of a file, of these kinds if any are given, with a name like the one sought."""
    from difflib import get_close_matches

    wanted = kinds or (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = {str(vars(node)["name"]): node for node in module.statements if isinstance(node, wanted)}
    return [Fact(module, nodes[match]) for match in get_close_matches(name, nodes, cutoff=0.5)]
