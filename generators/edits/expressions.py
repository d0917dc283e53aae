"""Replace an expression or words of a docstring, and enter one more context in a `with` statement."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from skillgen.edits.anchors import definitions, find_function, nearest_calls, places
from skillgen.edits.shape import children, shape
from skillgen.edits.splice import Splice
from skillgen.edits.tree import Definition, Tree, closest
from skillgen.kernel.model import AddContext, ReplaceExpression, ReplaceWords


def _scope(tree: Tree, name: str) -> Definition:
    """The one function or class of this qualified name."""
    known = list(definitions(tree.module))
    found = [node for label, node in known if label == name]
    if len(found) != 1:
        several = f" (defined {len(found)} times)" if found else ""
        raise tree.drift(f"definition {name}{several}", found or closest(name, known))
    return found[0]


def _expressions(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Every expression below a node, the outer ones first."""
    for child in children(node):
        if isinstance(child, cst.BaseExpression):
            yield child
        yield from _expressions(child)


def replace_expression(edit: ReplaceExpression, tree: Tree) -> Splice | None:
    """Done already if the new expression is there and, outside of it, the old one is not."""
    scope = _scope(tree, edit.scope)
    old, new = (shape(cst.parse_expression(code)) for code in (edit.old, edit.new))
    known = list(_expressions(scope))
    ours = [node for node in known if tree.shape(node) == new]
    inside = {id(inner) for node in ours for inner in (node, *_expressions(node))}
    found = [node for node in known if tree.shape(node) == old and id(node) not in inside]
    if not found and ours:
        return None
    if len(found) != 1:
        several = f" ({len(found)} matches)" if found else ""
        near = found or closest(edit.old, ((tree.text(node), node) for node in known))
        raise tree.drift(f"expression `{edit.old}` in {edit.scope}{several}", near, near=scope)
    return Splice(*tree.span(found[0]), edit.new.encode())


def replace_words(edit: ReplaceWords, tree: Tree) -> Splice | None:
    """Done already if the docstring has the new words."""
    scope = _scope(tree, edit.scope)
    first = scope.body.body[0] if isinstance(scope.body, cst.IndentedBlock) else None
    if not isinstance(first, cst.SimpleStatementLine) or scope.get_docstring(clean=False) is None:
        raise tree.drift(f"docstring of {edit.scope}", [scope])
    start, end = tree.span(first)
    text = tree.data[start:end]
    old, new = (re.compile(rb"\s+".join(map(re.escape, words.encode().split()))) for words in (edit.old, edit.new))
    if new.search(text):
        return None
    found = list(old.finditer(text))
    if len(found) != 1:
        several = f" ({len(found)} matches)" if found else ""
        raise tree.drift(f"words `{edit.old}` in the docstring of {edit.scope}{several}", [first], near=scope)
    low, high = start + found[0].start(), start + found[0].end()
    indent = tree.indent(high)
    lines = edit.new.split("\n")
    return Splice(low, high, f"{tree.newline}{indent}".join(line.strip() for line in lines).encode())


def add_context(edit: AddContext, tree: Tree) -> Splice | None:
    """Done already if the statement enters `code` right before the call."""
    scope = find_function(tree, edit.function)
    wanted = shape(cst.parse_expression(edit.code))
    found = [
        (node.items, at)
        for node in (place.node for place in places(scope))
        if isinstance(node, cst.With)
        for at, item in enumerate(node.items)
        if isinstance(item.item, cst.Call) and tree.is_name(item.item.func, edit.call)
    ]
    if len(found) != 1:
        several = f" ({len(found)} matches)" if found else ""
        near = nearest_calls(tree, scope, edit.call)
        raise tree.drift(f"with statement that enters {edit.call} in {edit.function}{several}", near, near=scope)
    items, at = found[0]
    if at and tree.shape(items[at - 1].item) == wanted:
        return None
    start = tree.span(items[at].item)[0]
    own_line = not tree.data[tree.line_start(start) : start].strip()
    gap = f"{tree.newline}{tree.indent(start)}" if own_line else " "
    return Splice(start, start, f"{edit.code},{gap}".encode())
