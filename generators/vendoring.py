"""Files that a patch brings along: our runtime and tests, each below the target's copyright header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from skillgen.model import AddFile

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
