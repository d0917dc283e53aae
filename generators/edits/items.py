"""Add an item to a list or tuple that is assigned to a top-level name."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from skillgen.edits.shape import blocks, dotted, shape
from skillgen.edits.splice import Splice
from skillgen.edits.tree import Tree, closest
from skillgen.edits.wrap import Brackets, add_item
from skillgen.kernel.model import AddItem


def _assigned(tree: Tree) -> Iterator[tuple[str, cst.CSTNode]]:
    """The names that the top level of the file assigns, with their values."""
    for block in blocks(tree.module):
        for statement in block:
            for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
                if isinstance(small, cst.Assign):
                    yield from ((dotted(target.target), small.value) for target in small.targets)
                elif isinstance(small, cst.AnnAssign) and small.value is not None:
                    yield dotted(small.target), small.value


def add_tuple_item(edit: AddItem, tree: Tree) -> Splice | None:
    """Done already if the list or tuple holds the item."""
    known = list(_assigned(tree))
    values = [value for name, value in known if name == edit.name]
    found = [value for value in values if isinstance(value, cst.List) or (isinstance(value, cst.Tuple) and value.lpar)]
    if len(found) != 1:
        raise tree.drift(f"list or tuple {edit.name}", values or closest(edit.name, known))
    items = [element.value for element in found[0].elements]
    shapes = [tree.shape(item) for item in items]
    if shape(cst.parse_expression(edit.code)) in shapes:
        return None
    after = shape(cst.parse_expression(edit.after))
    if after not in shapes:
        near = closest(edit.after, ((tree.text(item), item) for item in items)) or list(found)
        raise tree.drift(f"item {edit.after} of {edit.name}", near, near=found[0])
    first, last = (
        (found[0].lbracket, found[0].rbracket)
        if isinstance(found[0], cst.List)
        else (found[0].lpar[0], found[0].rpar[-1])
    )
    start, end = tree.span(first)[0], tree.span(last)[1] - 1
    pair = Brackets(start, end, [tree.span(item) for item in items], [None] * len(items))
    index = shapes.index(after)
    if isinstance(found[0], cst.List) and len({tree.line_start(first) for first, _ in pair.items}) == 1:
        return Splice(pair.items[index][1], pair.items[index][1], f", {edit.code}".encode())  # on its one line
    return add_item(tree, tree.module, pair, index, edit.code)
