"""One more item in a call or a signature, laid out as the target's formatter would."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import libcst as cst

from skillgen.edits.anchors import places
from skillgen.edits.shape import own_calls
from skillgen.edits.splice import Splice
from skillgen.edits.tree import Tree

_GAP = re.compile(rb"(?:[\s,\\]|#[^\n]*)*")
_COMMA = re.compile(rb"[\s\\]*,")
_HEAD = re.compile(
    r"\s*(?:(?:return|await|yield|raise|assert|if|elif|while|with|not|async|def)\s+)*(?:[^=()#]*=\s*)?(?:await\s+)?[\w.]*"
)
_TAIL = re.compile(r"(?:\.\w+|\[\w*\])*(?:\s+as\s+\w+)?(?:\s*->[^#]*)?[:,]?\s*(?:#.*)?")


class Brackets(NamedTuple):
    """A pair of parentheses and its items; `open` and `close` are the offsets of the two characters."""

    open: int
    close: int
    items: Sequence[tuple[int, int]]
    nodes: Sequence[cst.CSTNode | None]


def call_brackets(tree: Tree, call: cst.Call) -> Brackets:
    opening = tree.data.index(b"(", tree.span(call.func)[1])
    items = [tree.span(arg) for arg in call.args]
    return Brackets(opening, tree.span(call)[1] - 1, items, [arg.value for arg in call.args])


def signature_brackets(tree: Tree, function: cst.FunctionDef, params: Sequence[cst.CSTNode]) -> Brackets:
    generics = function.type_parameters
    opening = tree.data.index(b"(", tree.span(generics if generics else function.name)[1])
    items = [_bare(tree, param) for param in params]
    gap = _GAP.match(tree.data, items[-1][1])
    assert gap is not None
    return Brackets(opening, gap.end(), items, [None] * len(items))


def _bare(tree: Tree, param: cst.CSTNode) -> tuple[int, int]:
    """From name or marker to default; libcst takes the span of a parameter to end with its name."""
    start, end = tree.span(param)
    if not isinstance(param, cst.Param):
        return start, start + 1
    last = param.default or (param.annotation.annotation if param.annotation else None)
    if last is None:
        return start, end
    return start, tree.span(last.rpar[-1] if last.rpar else last)[1]


def add_item(tree: Tree, scope: cst.CSTNode, pair: Brackets, index: int, code: str) -> Splice:
    """Put `code` behind item `index`."""
    end = pair.items[index][1]
    comma = _COMMA.match(tree.data, end)
    inside = comma is not None and comma.end() <= pair.close
    own_line = tree.data[tree.line_start(pair.items[index][0]) : pair.items[index][0]].strip() == b""
    if _trailing_comma(tree, pair) or (own_line and _one_per_line(tree, pair)):
        eol = tree.line_end(comma.end() if inside and comma else end)
        if own_line and eol <= pair.close and _only_comment(tree.data[comma.end() if inside and comma else end : eol]):
            line = f"{tree.indent(pair.items[index][0])}{code},{tree.newline}"
            if inside:
                return Splice(eol, eol, line.encode())
            return Splice(end, eol, b"," + tree.data[end:eol] + line.encode())
    new = Splice(end, end, f", {code}".encode())
    return relayout(tree, scope, pair, [new]) or new


def _trailing_comma(tree: Tree, pair: Brackets) -> bool:
    gap = tree.data[pair.items[-1][1] : pair.close]
    return re.sub(rb"#[^\n]*", b"", gap).strip() == b","


def _one_per_line(tree: Tree, pair: Brackets) -> bool:
    return len({tree.line_start(start) for start, _ in pair.items}) == len(pair.items) > 1


def _only_comment(rest: bytes) -> bool:
    return not rest.strip() or rest.strip().startswith(b"#")


def relayout(tree: Tree, scope: cst.CSTNode, pair: Brackets, changes: Sequence[Splice]) -> Splice | None:
    """The changes with the lines around them wrapped anew; None where the layout should stay as it is.

    Calls with a trailing comma, with comments or with items of several lines keep their layout.
    """
    outer = _outermost(tree, scope, pair)
    inner = tree.data[outer.open : outer.close]
    if not outer.items or _trailing_comma(tree, outer) or b"#" in inner:
        return None
    if any(b"\n" in tree.data[start:end] for start, end in outer.items):
        return None
    start, end = tree.line_start(outer.open), outer.close + 1
    stop = end + len(tree.data[end : tree.line_end(end)].rstrip())
    prefix = _changed(tree, start, outer.open, changes)
    suffix = _changed(tree, end, stop, changes)
    if not (_HEAD.fullmatch(prefix) and _TAIL.fullmatch(suffix)):
        return None
    indent = tree.indent(start)
    new = _layout(tree, outer, prefix, suffix, indent, changes)[len(indent) :]
    return Splice(start + len(indent.encode()), stop, new.encode())


def _outermost(tree: Tree, scope: cst.CSTNode, pair: Brackets) -> Brackets:
    """The widest call around a pair of parentheses whose line breaks depend on the change."""
    for place in places(scope):
        start, end = tree.span(place.node)
        if not start <= pair.open < end:
            continue
        for call in own_calls(place.node):
            other = call_brackets(tree, call)
            if not (other.open < pair.open and pair.close < other.close):
                continue
            flat = not any(b"\n" in tree.data[first:last] for first, last in other.items)
            if flat and not _trailing_comma(tree, other):
                pair = other
    return pair


def _changed(tree: Tree, start: int, end: int, changes: Iterable[Splice]) -> str:
    data, at = b"", start
    for change in sorted(changes):
        if start <= change.start and change.end <= end:
            data += tree.data[at : change.start] + change.new
            at = change.end
    return (data + tree.data[at:end]).decode()


def _fits(tree: Tree, line: str) -> bool:
    return len(line.expandtabs(4)) <= tree.line_length


def _layout(tree: Tree, pair: Brackets, prefix: str, suffix: str, indent: str, changes: Sequence[Splice]) -> str:
    """On one line; else with all items on a second line; else with one item per line."""
    items: list[tuple[str, cst.CSTNode | None, int]] = []
    for (start, end), node in zip(pair.items, pair.nodes, strict=True):
        new = [change.new.decode().removeprefix(", ") for change in changes if change.start == change.end == end]
        items.append((_changed(tree, start, end, [change for change in changes if change.start < end]), node, start))
        items += [(item, None, end) for item in new]
    flat = ", ".join(item for item, _, _ in items)
    one = f"{prefix}({flat}){suffix}"
    if _fits(tree, one):
        return one
    deeper = indent + tree.unit
    together = deeper + flat
    if _fits(tree, together):
        return tree.newline.join([f"{prefix}(", together, f"{indent}){suffix}"])
    lines = [f"{prefix}("]
    for item, node, start in items:
        line = f"{deeper}{item},"
        if not _fits(tree, line) and isinstance(node, cst.Call) and node.args:
            nested = call_brackets(tree, node)
            head = deeper + _changed(tree, start, nested.open, changes)
            line = _layout(tree, nested, head, ",", deeper, changes)
        lines.append(line)
    return tree.newline.join([*lines, f"{indent}){suffix}"])
