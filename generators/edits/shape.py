"""What two pieces of code have in common once their formatting is ignored."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields
from functools import cache

import libcst as cst

_LAYOUT = {
    "comma",
    "footer",
    "header",
    "indent",
    "leading_lines",
    "lines_after_decorators",
    "lpar",
    "rpar",
    "semicolon",
    "trailing_whitespace",
}
_DEFINITIONS = (cst.FunctionDef, cst.ClassDef)
_CLAUSES = ("body", "handlers", "orelse", "finalbody", "cases")


@cache
def _names(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    skip = _LAYOUT if kind is cst.FormattedStringExpression else _LAYOUT | {"equal"}
    return tuple(f.name for f in fields(kind) if f.name not in skip and not f.name.startswith("whitespace"))


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The child nodes that carry meaning, in source order of the grammar's fields."""
    for name in _names(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, cst.CSTNode))


def shape(node: object) -> Hashable:
    """A value that is equal for equal code, whatever its quotes, parentheses, commas, comments and line breaks."""
    if isinstance(node, (cst.SimpleString, cst.ConcatenatedString)):
        value = node.evaluated_value
        if value is not None:
            return "str", value
    if isinstance(node, cst.Expr) and isinstance(node.value, (cst.SimpleString, cst.ConcatenatedString)):
        value = node.value.evaluated_value
        return "docstring", " ".join(value.split()) if isinstance(value, str) else value
    if isinstance(node, cst.FormattedString):
        prefix = node.start.rstrip("'\"").lower()
        return "f-string", prefix, tuple(shape(part) for part in node.parts)
    if isinstance(node, cst.CSTNode):
        return type(node).__name__, *(shape(getattr(node, name)) for name in _names(type(node)))
    if isinstance(node, (list, tuple)):
        return tuple(shape(item) for item in node)
    return None if isinstance(node, cst.MaybeSentinel) else node if isinstance(node, Hashable) else None


def dotted(node: cst.CSTNode | None) -> str:
    """`a.b.c` for a name or an attribute chain, else the empty string."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr.value}" if head else ""
    return ""


def blocks(node: cst.CSTNode) -> Iterator[Sequence[cst.CSTNode]]:
    """Every statement list under `node`, outermost first, without the bodies of nested functions and classes."""
    if isinstance(node, (cst.IndentedBlock, cst.Module)):
        yield node.body
        for statement in node.body:
            if type(statement) not in _DEFINITIONS:
                yield from blocks(statement)
        return
    for name in _CLAUSES:
        value = getattr(node, name, None)
        for part in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(part, cst.CSTNode) and not isinstance(part, cst.BaseSmallStatement):
                yield from blocks(part)


def own_calls(statement: cst.CSTNode) -> Iterator[cst.Call]:
    """The calls that a statement makes itself: of a compound one, those in its headers."""
    if isinstance(statement, cst.Call):
        yield statement
    for child in children(statement):
        if not isinstance(child, cst.IndentedBlock):
            yield from own_calls(child)


def parse_code(code: str) -> Sequence[cst.CSTNode]:
    """The statements of an edit's code, which is dedented already."""
    try:
        return cst.parse_module(code).body
    except cst.ParserSyntaxError as error:
        raise ValueError(f"the code of an edit does not parse: {code!r}") from error
