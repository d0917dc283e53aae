"""Files that a patch brings along: our runtime and tests, each below the target's copyright header."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from skillgen.kernel.model import AddFile

if TYPE_CHECKING:
    from pathlib import Path


def header(source: Path) -> str:
    """The comment block that opens a source of the target, for the year in which the files were written."""
    lines = source.read_text(encoding="utf-8-sig").splitlines() if source.is_file() else []
    block = list(takewhile(lambda line: line.startswith("#"), lines))
    return re.sub(r"\b20\d\d\b", "2026", "\n".join([*block, "", ""]), count=1) if block else ""


def add_files(header: str, contents: Mapping[str, str]) -> list[AddFile]:
    """New files by path, each below the header."""
    return [AddFile(path=path, content=header + content) for path, content in contents.items()]


def rendered(source: Path, contents: Mapping[str, str], **facts: object) -> list[AddFile]:
    """New files by path from templates by name, below the header of a source of the target."""
    from skillgen.kernel.render import render

    return add_files(header(source), {path: render(template, **facts) for path, template in contents.items()})


def one_line_below_imports(source: str) -> str:
    """The source as a formatter leaves it that wants two blank lines below imports only above a definition."""
    body = ast.parse(source).body
    last = max((at for at, node in enumerate(body) if isinstance(node, (ast.Import, ast.ImportFrom))), default=None)
    if last is None or isinstance(body[last + 1], (ast.FunctionDef, ast.ClassDef)):
        return source
    lines = source.splitlines(keepends=True)
    end = body[last].end_lineno or 0
    below = next(at for at in range(end, len(lines)) if lines[at].strip())
    return "".join([*lines[:end], "\n", *lines[below:]])
