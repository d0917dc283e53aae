"""Changes as byte splices, and code brought into the indentation and line endings of its place."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from skillgen.edits.tree import Tree


class Splice(NamedTuple):
    """Replace `data[start:end]` by `new`."""

    start: int
    end: int
    new: bytes

    def meets(self, other: Splice) -> bool:
        return self.start <= other.end and other.start <= self.end


def splice(data: bytes, splices: Iterable[Splice]) -> bytes:
    for start, end, new in sorted(splices, reverse=True):
        data = data[:start] + new + data[end:]
    return data


def _frozen_lines(code: str) -> set[int]:
    """Line numbers inside multi-line strings that are data: their white space is their value."""
    tree = ast.parse(code)
    text = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    frozen: set[int] = set()
    for node in ast.walk(tree):
        constant = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        if (constant or isinstance(node, ast.JoinedStr)) and id(node) not in text:
            assert isinstance(node, ast.expr)
            frozen.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return frozen


def clean(code: str) -> str:
    """An edit's code dedented, its outer line breaks removed."""
    return textwrap.dedent(code).strip("\n").rstrip()


def indented(tree: Tree, code: str, indent: str) -> str:
    """Clean code at `indent`, its four-space levels in the unit of the file; the last line is not ended."""
    frozen = _frozen_lines(code)
    lines = []
    for number, line in enumerate(code.split("\n"), 1):
        if number not in frozen and line.strip():
            body = line.lstrip(" ")
            levels, rest = divmod(len(line) - len(body), 4)
            line = f"{indent}{tree.unit * levels}{' ' * rest}{body}"
        lines.append(line)
    return tree.newline.join(lines)


def insert_lines(tree: Tree, offset: int, text: str, *, above: int = 0, below: int = 0) -> Splice:
    """Insert whole lines at a line start, with at least so many blank lines above and below."""
    nl = tree.newline
    head, rest = tree.data[:offset], tree.data[offset:]
    unended = bool(head) and not head.endswith(b"\n")
    blanks = 0 if unended else _blank(reversed(head.split(b"\n")[:-1]))
    if head.strip():
        text = nl * max(0, above - blanks) + text
    if unended:
        return Splice(offset, offset, (nl + text).encode())
    text += nl
    if rest.strip():
        text += nl * max(0, below - _blank(rest.split(b"\n")))
    return Splice(offset, offset, text.encode())


def _blank(lines: Iterable[bytes]) -> int:
    count = 0
    for line in lines:
        if line.strip():
            break
        count += 1
    return count
