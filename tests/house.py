"""The pack's modules, what each imports and what it says, read as syntax: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {"generators": "skillgen", "evals": "skillgen.evals", "runtime": "skillgen.runtime"}
Arrow = tuple[str, str]  # a module imports another


def module_of(path: Path) -> str:
    """The dotted name of a file, without `skillgen.`; the package itself is its folder."""
    folder, *inner = path.relative_to(ROOT).with_suffix("").parts
    parts = [*PACKAGES[folder].split("."), *inner]
    return ".".join(parts[1:-1] if parts[-1] == "__init__" else parts[1:])


@cache
def trees() -> dict[str, ast.Module]:
    """Every module's syntax tree."""
    files = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]
    return {module_of(path): ast.parse(path.read_bytes()) for path in files}


@cache
def packages() -> frozenset[str]:
    """The modules that are packages: imports in them are relative to themselves."""
    return frozenset(module_of(path) for folder in PACKAGES for path in (ROOT / folder).rglob("__init__.py"))


def arrows() -> set[Arrow]:
    """Who imports whom, also inside functions and for types alone."""
    return {(name, found) for name, tree in trees().items() for found in imported(name, tree) if found != name}


def imported(name: str, tree: ast.Module) -> Iterator[str]:
    """The modules of the pack that one imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name if name in packages() else name.rpartition(".")[0]
                above = ["skillgen", *package.split(".")][: len(package.split(".")) + 2 - node.level]
                base = ".".join([*above, *([node.module] if node.module else [])])
            wanted = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for full in wanted:
            inner = full.removeprefix("skillgen.")
            if full.startswith("skillgen."):
                yield inner if inner in trees() else inner.rpartition(".")[0]


def circles(found: Iterable[Arrow]) -> list[list[str]]:
    """Modules that import each other, however long the way round: what is left when leaves are taken off."""
    left = set(found)
    while True:
        ends = {a for a, _ in left} & {b for _, b in left}
        kept = {(a, b) for a, b in left if a in ends and b in ends}
        if kept == left:
            return sorted({tuple(sorted(arrow)) for arrow in left}) and [sorted(ends)]
        left = kept


def words(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every identifier and string of a module with its line, docstrings included."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        for field in ("id", "attr", "arg", "name", "module"):
            if isinstance(said := getattr(node, field, None), str):
                yield line, said
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield line, node.value if isinstance(node.value, str) else node.value.decode("latin-1")
