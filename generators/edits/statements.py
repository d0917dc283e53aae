"""Insert statements before or after an anchor, and replace one."""

from __future__ import annotations

from skillgen.edits.anchors import Place, find_function, find_statements, no_statement, occurrences
from skillgen.edits.shape import parse_code
from skillgen.edits.splice import Splice, clean, indented, insert_lines
from skillgen.edits.tree import Tree
from skillgen.kernel.model import InsertAfter, InsertBefore, ReplaceStatement


def insert(edit: InsertBefore | InsertAfter, tree: Tree) -> Splice | None:
    """Done already if the code stands in the anchor's block on the right side of it, or the anchor became our own."""
    scope = find_function(tree, edit.function)
    code = clean(edit.code)
    ours = occurrences(tree, scope, code)
    found = find_statements(tree, scope, edit.anchor, ours)
    if len(found) != 1:
        if ours:
            return None
        raise no_statement(tree, scope, edit.function, edit.anchor, found)
    before = isinstance(edit, InsertBefore)
    if any(_beside(place, count, found[0], before=before, touching=_has_twin(edit, tree)) for place, count in ours):
        return None
    anchor = found[0].node
    offset = tree.before(anchor) if before else tree.behind(anchor)
    text = indented(tree, code, tree.indent(tree.span(anchor)[0]))
    above, below = _margins(edit.code)
    return insert_lines(tree, offset, text, above=above, below=below)


def _margins(code: str) -> tuple[int, int]:
    """Blank lines asked for: line breaks at the ends of the code, the one that a triple quote brings not counted."""
    code = code.rstrip(" ")
    return (
        max(0, len(code) - len(code.lstrip("\n")) - 1),
        max(0, len(code) - len(code.rstrip("\n")) - 1),
    )


def _beside(place: Place, count: int, anchor: Place, *, before: bool, touching: bool) -> bool:
    if place.block is not anchor.block:
        return False
    gap = anchor.at - place.at - count if before else place.at - anchor.at - 1
    return gap == 0 if touching else gap >= 0


def _has_twin(edit: InsertBefore | InsertAfter, tree: Tree) -> bool:
    """Whether another edit puts the same code elsewhere in the function, so that finding it somewhere says little."""
    return any(
        isinstance(other, (InsertBefore, InsertAfter))
        and other != edit
        and (other.function, clean(other.code)) == (edit.function, clean(edit.code))
        for other in tree.edits
    )


def replace(edit: ReplaceStatement, tree: Tree) -> Splice | None:
    """Done already if the new code is there and, outside of it, the anchor is not."""
    scope = find_function(tree, edit.function)
    code = clean(edit.code)
    ours = occurrences(tree, scope, code)
    count = 1 if edit.anchor.startswith(("call:", "if:")) else len(parse_code(clean(edit.anchor)))
    if count == 1:
        found = find_statements(tree, scope, edit.anchor, ours)
    else:
        mine = {id(place.node) for place, _ in ours}
        runs = occurrences(tree, scope, clean(edit.anchor))
        if {tree.shape(node) for node in parse_code(code)} <= {tree.shape(n) for n in parse_code(clean(edit.anchor))}:
            raise ValueError(f"what replaces statements must not be some of them: {edit.code!r}")
        found = [place for place, _ in runs if id(place.node) not in mine]
    if not found and ours:
        return None
    if len(found) != 1:
        raise no_statement(tree, scope, edit.function, edit.anchor, found)
    start, end = tree.span(found[0].node)[0], tree.span(found[0].block[found[0].at + count - 1])[1]
    indent = tree.indent(start)
    return Splice(start, end, indented(tree, code, indent)[len(indent) :].encode())
