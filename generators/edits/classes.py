"""Add a dataclass field, a method, or a top-level definition."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from skillgen.edits.anchors import find_class, find_definition
from skillgen.edits.shape import dotted, parse_code
from skillgen.edits.splice import Splice, clean, indented, insert_lines
from skillgen.edits.tree import Definition, Tree, closest
from skillgen.kernel.model import AddDefinition, AddField, AddMethod


def _field(node: cst.CSTNode) -> tuple[str, cst.AnnAssign] | None:
    if isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], cst.AnnAssign):
        return dotted(node.body[0].target), node.body[0]
    return None


def _fields(body: Sequence[cst.CSTNode]) -> dict[str, tuple[int, cst.AnnAssign]]:
    """Field name to its index in the class body and its assignment."""
    found = ((index, _field(node)) for index, node in enumerate(body))
    return {field[0]: (index, field[1]) for index, field in found if field}


def _is_text(node: cst.CSTNode) -> bool:
    if not (isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], cst.Expr)):
        return False
    return isinstance(node.body[0].value, (cst.SimpleString, cst.ConcatenatedString))


def _is_dataclass(tree: Tree, node: cst.ClassDef) -> bool:
    for decorator in node.decorators:
        inner = decorator.decorator
        name = dotted(inner.func if isinstance(inner, cst.Call) else inner)
        if tree.resolve(name) == "dataclasses.dataclass":
            return True
    return False


def add_field(edit: AddField, tree: Tree) -> Splice | None:
    """Done already if all fields of the code are there as they are in it."""
    cls = find_class(tree, edit.cls)
    if not _is_dataclass(tree, cls):
        raise tree.drift(f"dataclass {edit.cls} (the class is not decorated by dataclasses.dataclass)", [cls])
    if not isinstance(cls.body, cst.IndentedBlock):
        raise tree.drift(f"body of class {edit.cls}", [cls])
    code = clean(edit.code)
    body = cls.body.body
    present = _fields(body)
    wanted = _fields(parse_code(code))
    if not wanted:
        raise ValueError(f"the code of an AddField holds no field: {edit.code!r}")
    clash = [present[name][1] for name in wanted if name in present]
    if clash:
        if [tree.shape(node) for node in clash] == [tree.shape(node) for _, node in wanted.values()]:
            return None
        raise tree.drift(f"field `{', '.join(wanted)}` as this edit writes it in {edit.cls}", clash, near=cls)
    if edit.after is not None and edit.after not in present:
        labels = ((name, node) for name, (_, node) in present.items())
        raise tree.drift(f"field {edit.after} in {edit.cls}", closest(edit.after, labels), near=cls)
    text = indented(tree, code, tree.indent(tree.span(body[0])[0]))
    if edit.after is None and not present:
        if _is_text(body[0]):
            return insert_lines(tree, tree.behind(body[0]), text, above=1, below=1)
        return insert_lines(tree, tree.before(body[0]), text)
    index = present[edit.after][0] if edit.after else max(index for index, _ in present.values())
    while index + 1 < len(body) and _is_text(body[index + 1]):
        index += 1
    follows = index + 1 < len(body) and _field(body[index + 1]) is not None
    apart = int(code.startswith("#"))
    return insert_lines(tree, tree.behind(body[index]), text, above=apart, below=apart if follows else 1)


def _there(tree: Tree, code: str, body: Sequence[cst.CSTNode], owner: str) -> bool:
    """Whether the definition stands in a body already; one of the same name with other code is a drift."""
    node = parse_code(code)
    if len(node) != 1 or not isinstance(node[0], (cst.FunctionDef, cst.ClassDef)):
        raise ValueError(f"the code of the edit is not one definition: {code!r}")
    name = node[0].name.value
    same = [item for item in body if isinstance(item, (cst.FunctionDef, cst.ClassDef)) and item.name.value == name]
    if any(tree.shape(item) == tree.shape(node[0]) for item in same):
        return True
    if same:
        raise tree.drift(f"definition of {name} in {owner} as this edit writes it", same)
    return False


def add_method(edit: AddMethod, tree: Tree) -> Splice | None:
    """Done already if the class has the same method."""
    cls = find_class(tree, edit.cls)
    code = clean(edit.code)
    if _there(tree, code, cls.body.body, edit.cls):
        return None
    anchor = find_definition(tree, f"{edit.cls}.{edit.after}", "function")
    text = indented(tree, code, tree.indent(tree.span(anchor)[0]))
    return insert_lines(tree, tree.behind(anchor), text, above=1, below=1)


def add_definition(edit: AddDefinition, tree: Tree) -> Splice | None:
    """Done already if the module has the same definition."""
    code = clean(edit.code)
    if _there(tree, code, tree.module.body, edit.path):
        return None
    anchor = _top_level(tree, edit.before)
    return insert_lines(tree, tree.before(anchor), indented(tree, code, ""), above=2, below=2)


def _top_level(tree: Tree, name: str) -> Definition:
    known = [node for node in tree.module.body if isinstance(node, (cst.FunctionDef, cst.ClassDef))]
    found = [node for node in known if node.name.value == name]
    if len(found) == 1:
        return found[0]
    several = f" (defined {len(found)} times)" if found else ""
    near = found or closest(name, ((node.name.value, node) for node in known))
    raise tree.drift(f"top-level definition {name}{several}", near)
