"""The files that a piece of the pack's code rests on: what it imports, what it names, what it renders. Runs none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from skillgen.kernel import resources

FOLDERS = {"skillgen.runtime": "runtime", "skillgen.evals": "evals", "skillgen": "generators"}
# What tells, writes or keeps what others have decided.
LEFT_OUT = tuple(
    f"skillgen.{n}" for n in ("engine", "ledger", "fetching", "report", "card", "skillpack", "mcp", "cli")
)
VENDORING = "runtime_sources"  # whoever calls it puts the runtime into targets


@dataclass(frozen=True)
class Code:
    """The pack's code in a checkout, or with None as it is installed."""

    pack: Path | None = None

    @cached_property
    def tops(self) -> dict[str, Path]:
        """The folders of a checkout by name, wherever they lie."""
        if self.pack is not None:
            return {top: self.pack / top for top in (*FOLDERS.values(), "templates")}
        runtime, evals = (resources.package_folder(f"skillgen.{top}") for top in ("runtime", "evals"))
        return {
            "runtime": runtime,
            "evals": evals,
            "generators": resources.HERE,
            "templates": resources.root() / "templates",
        }

    def below(self, folder: str, pattern: str = "**/*.py") -> set[str]:
        """The files below a folder of a checkout, by their names in it."""
        top, _, rest = folder.partition("/")
        found = (self.tops[top] / rest).glob(pattern)
        paths = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
        return {f"{top}/{path.relative_to(self.tops[top]).as_posix()}" for path in paths}

    def text(self, name: str) -> str:
        top, _, rest = name.partition("/")
        return (self.tops[top] / rest).read_text(encoding="utf-8")

    def has(self, name: str) -> bool:
        top, _, rest = name.partition("/")
        return top in self.tops and (self.tops[top] / rest).is_file()

    def file(self, module: str) -> str | None:
        """The file of one of our modules; None for what is none."""
        for package, top in FOLDERS.items():
            if module == package or module.startswith(package + "."):
                base = "/".join([top, *module.removeprefix(package).strip(".").split(".")]).rstrip("/")
                return next((name for name in (f"{base}.py", f"{base}/__init__.py") if self.has(name)), None)
        return None

    def closure(self, names: Iterable[str]) -> set[str]:
        """These files, and every one of ours that they import or name or render, directly or not."""
        found: set[str] = set()
        todo = [*names]
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += self._used_by(name)
        return found

    def _used_by(self, name: str) -> set[str]:
        if name.endswith(".j2"):
            included = re.findall(r"{%-?\s*(?:include|extends|import|from)\s+[\"']([^\"']+)", self.text(name))
            return {f"templates/{other}" for other in included} & self.below("templates", "**/*")
        top, _, rest = name.partition("/")
        package = next(package for package, folder in FOLDERS.items() if folder == top)
        parts = [package, *rest.removesuffix(".py").split("/")]
        text = self.text(name)
        imports, strings = _references(text, tuple(parts))
        used = {found for module in imports if not module.startswith(LEFT_OUT) and (found := self.file(module))}
        named = {self.file(word) for word in strings if word.startswith("skillgen.")}
        used |= {found for found in named if found and not found.endswith("/__init__.py")}
        return used | (self._named(name, strings, VENDORING in text) if _knows_targets(name) else set())

    def _named(self, name: str, strings: frozenset[str], vendors: bool) -> set[str]:
        """What the code of a technique or a suite refers to without an import."""
        used = self.below("runtime", "*.py") if vendors else set()
        for text in strings:
            if text.endswith(".j2"):
                used |= self._templates(name, text)
            elif re.fullmatch(r"[\w-]+", text):
                used.add(f"generators/products/{text.replace('-', '_')}.py")
                used |= self.below(f"runtime/{text}", "*.py") if vendors else set()
        return {found for found in used if self.has(found)}

    def _templates(self, name: str, text: str) -> set[str]:
        """The template of this name, or those of the technique whose names end so."""
        if self.has(f"templates/{text}"):
            return {f"templates/{text}"}
        own = "/".join(["templates", *name.split("/")[2:3]])
        return {found for found in self.below(own, "**/*.j2") if found.endswith(f"/{text.lstrip('/')}")}


def _knows_targets(name: str) -> bool:
    return name.startswith(("generators/techniques/", "evals/"))


@cache
def _references(text: str, parts: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Every module that a file imports, inside functions too, and every string in it that may be a name."""
    imports: set[str] = set()
    strings: set[str] = set()
    package = parts[:-1]  # `a/__init__.py` and `a/b.py` both count from a
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) + 1 - node.level]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            imports |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            strings.add(node.value)
    for module in [*imports]:  # importing a.b runs a as well
        names = module.split(".")
        imports |= {".".join(names[:depth]) for depth in range(2, len(names))}
    return frozenset(imports), frozenset(strings)
