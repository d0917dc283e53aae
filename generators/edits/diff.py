"""Differences between two states of files, as a count and as a patch that `git apply` takes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from skillgen.kernel.model import Change

_NO_END = "\\ No newline at end of file\n"


def _lines(data: bytes | None) -> list[str]:
    """Lines with their ends; only a line feed ends one, and undecodable bytes survive as surrogates."""
    text = (data or b"").decode("utf-8", "surrogateescape")
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def changed_lines(before: bytes | None, after: bytes | None) -> int:
    """Lines added plus lines removed."""
    marks = difflib.unified_diff(_lines(before), _lines(after), n=0)
    return sum(1 for index, line in enumerate(marks) if index > 1 and line[0] in "+-")


def unified_diff(changes: Iterable[Change]) -> str:
    """One patch for all changes. Encode it with `surrogateescape` where files are not UTF-8."""
    return "".join(line for change in changes for line in _one(change))


def _one(change: Change) -> Iterator[str]:
    if change.before == change.after:
        return
    yield f"diff --git a/{change.path} b/{change.path}\n"
    if change.before is None:
        yield "new file mode 100644\n"
    if change.after is None:
        yield "deleted file mode 100644\n"
    if not (change.before or change.after):
        yield "index e69de29..0000000\n" if change.after is None else "index 0000000..e69de29\n"
    old = "/dev/null" if change.before is None else f"a/{change.path}"
    new = "/dev/null" if change.after is None else f"b/{change.path}"
    for line in difflib.unified_diff(_lines(change.before), _lines(change.after), old, new):
        yield line if line.endswith("\n") else f"{line}\n{_NO_END}"
