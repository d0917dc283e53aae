"""Changes as byte splices, and code brought into the indentation and line endings of its place."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
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
    shown = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Expr)]
    text = [range(n.lineno, (n.end_lineno or n.lineno) + 1) for n in shown if isinstance(n, ast.Constant)]
    frozen: set[int] = set()
    opened: list[int] = []  # of f-strings, which are several tokens from Python 3.12 on
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        kind, first = tokenize.tok_name[token.type], token.start[0]
        if kind.endswith("STRING_START"):
            opened.append(first)
        elif kind.endswith("STRING_END") or kind == "STRING":
            first = first if kind == "STRING" else opened.pop()
            if not any(first in lines for lines in text):
                frozen.update(range(first + 1, token.end[0] + 1))
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
