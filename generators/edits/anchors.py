"""Finding what an edit holds on to: a definition, a statement, a call."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import libcst as cst

from skillgen.edits.shape import blocks, children, dotted, own_calls, parse_code, shape
from skillgen.edits.tree import Definition, Tree, closest

Block = Sequence[cst.CSTNode]
KINDS = {"function": cst.FunctionDef, "class": cst.ClassDef}


class Place(NamedTuple):
    """A statement as its block and its position therein."""

    block: Block
    at: int

    @property
    def node(self) -> cst.CSTNode:
        return self.block[self.at]


def definitions(node: cst.CSTNode, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """All functions and classes with their qualified names ("Class.method", "outer.inner")."""
    for block in blocks(node):
        for statement in block:
            if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                name = f"{prefix}{statement.name.value}"
                yield name, statement
                yield from definitions(statement, f"{name}.")


def find_definition(tree: Tree, name: str, kind: str) -> Definition:
    """The one function or class of this qualified name."""
    name = name.replace(".<locals>", "")
    if not tree.definitions:
        tree.definitions = list(definitions(tree.module))
    known = tree.definitions
    same = [node for label, node in known if label == name]
    found = [node for node in same if isinstance(node, KINDS[kind])]
    if len(found) == 1:
        return found[0]
    sought = f"{kind} {name}" + (f" (defined {len(found)} times)" if found else "")
    last = name.rpartition(".")[2]
    moved = [node for label, node in known if label.rpartition(".")[2] == last]
    raise tree.drift(sought, found or same or moved or closest(name, known))


def find_function(tree: Tree, name: str) -> cst.FunctionDef:
    found = find_definition(tree, name, "function")
    assert isinstance(found, cst.FunctionDef)
    return found


def find_class(tree: Tree, name: str) -> cst.ClassDef:
    found = find_definition(tree, name, "class")
    assert isinstance(found, cst.ClassDef)
    return found


def places(scope: cst.CSTNode) -> Iterator[Place]:
    """Every statement of a function, those of nested functions and classes left out."""
    for block in blocks(scope):
        for index in range(len(block)):
            yield Place(block, index)


def occurrences(tree: Tree, scope: cst.CSTNode, code: str) -> list[tuple[Place, int]]:
    """Where the statements of `code` stand one after the other already, each with their number."""
    wanted = [tree.shape(node) for node in parse_code(code)]
    if not wanted:
        raise ValueError("the code of an edit holds no statement")
    return [
        (place, len(wanted))
        for place in places(scope)
        if [tree.shape(node) for node in place.block[place.at : place.at + len(wanted)]] == wanted
    ]


def _within(place: Place, count: int) -> Iterator[int]:
    for node in place.block[place.at : place.at + count]:
        yield id(node)
        yield from (id(inner.node) for inner in places(node))


def find_statements(tree: Tree, scope: cst.CSTNode, anchor: str, ours: list[tuple[Place, int]]) -> list[Place]:
    """The statements of `scope` that match an anchor, those inside `ours` left out."""
    mine = {identity for place, count in ours for identity in _within(place, count)}
    open_places = [place for place in places(scope) if id(place.node) not in mine]
    if anchor.startswith("call:"):
        name = anchor.removeprefix("call:").strip()
        return [place for place in open_places if any(tree.is_name(call.func, name) for call in own_calls(place.node))]
    if anchor.startswith("if:"):
        test = shape(cst.parse_expression(anchor.removeprefix("if:").strip()))
        return [
            place for place in open_places if isinstance(place.node, cst.If) and tree.shape(place.node.test) == test
        ]
    wanted = parse_code(anchor)
    if len(wanted) != 1:
        raise ValueError(f"an anchor is one statement: {anchor!r}")
    sought: Hashable = tree.shape(wanted[0])
    return [place for place in open_places if tree.shape(place.node) == sought]


def no_statement(tree: Tree, scope: cst.FunctionDef, name: str, anchor: str, found: list[Place]) -> Exception:
    """The drift for an anchor that matches no statement, or several."""
    several = f" ({len(found)} matches)" if found else ""
    near = [place.node for place in found] or nearest_statements(tree, scope, anchor)
    return tree.drift(f"statement `{anchor}` in {name}{several}", near, near=scope)


def nearest_statements(tree: Tree, scope: cst.FunctionDef, anchor: str) -> list[cst.CSTNode]:
    if anchor.startswith("call:"):
        return nearest_calls(tree, scope, anchor.removeprefix("call:").strip())
    if anchor.startswith("if:"):
        tests = ((tree.text(node.test), node) for node in _all_statements(scope) if isinstance(node, cst.If))
        return closest(anchor.removeprefix("if:").strip(), tests)
    inside = [node for node in _all_statements(scope) if isinstance(node, cst.SimpleStatementLine)]
    return closest(anchor, ((tree.text(node), node) for node in inside))


def _all_statements(scope: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for child in children(scope):
        if isinstance(child, cst.BaseStatement):
            yield child
        yield from _all_statements(child)


def nearest_calls(tree: Tree, scope: cst.CSTNode, name: str) -> list[cst.CSTNode]:
    """Calls whose last name is the same, else those of a similar name, nested functions included."""
    calls = [(dotted(call.func), call) for node in (scope, *_all_statements(scope)) for call in own_calls(node)]
    last = name.rpartition(".")[2]
    same: list[cst.CSTNode] = [call for label, call in calls if label.rpartition(".")[2] == last]
    return same[:3] or closest(name, ((label, call) for label, call in calls if label))


def calls_of(tree: Tree, scope: cst.CSTNode, within: str | None = None) -> list[cst.Call]:
    """The calls in a function; with `within`, of the statements whose code starts with it."""
    found: dict[int, cst.Call] = {}
    for place in places(scope):
        if within is not None and not _code(place.node).startswith(" ".join(within.split())):
            continue
        inner = [place.node] if within is None else [place.node, *(p.node for p in places(place.node))]
        for node in inner:
            found.update((id(call), call) for call in own_calls(node))
    return list(found.values())


def _code(node: cst.CSTNode) -> str:
    bare = node.with_changes(leading_lines=()) if hasattr(node, "leading_lines") else node
    return " ".join(cst.Module(body=()).code_for_node(bare).split())


def find_call(tree: Tree, function: str, call: str, within: str | None = None) -> cst.Call:
    """The one call of a dotted name in a function."""
    scope = find_function(tree, function)
    found = [node for node in calls_of(tree, scope, within) if tree.is_name(node.func, call)]
    if len(found) != 1:
        raise no_call(tree, scope, function, call, within, found)
    return found[0]


def no_call(
    tree: Tree, scope: cst.FunctionDef, function: str, call: str, within: str | None, found: Sequence[cst.Call]
) -> Exception:
    place = f" within `{within}`" if within else ""
    several = f" ({len(found)} matches)" if found else ""
    near = list(found) or nearest_calls(tree, scope, call)
    return tree.drift(f"call of {call} in {function}{place}{several}", near, near=scope)
