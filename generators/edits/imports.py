"""Add names to a from-import, or the import itself at its place in the sorted sections; take names out of one."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

import libcst as cst

from skillgen.edits.shape import dotted
from skillgen.edits.splice import Splice, insert_lines
from skillgen.edits.tree import Tree
from skillgen.kernel.model import AddImport, RemoveImport
from skillgen.kernel.product import owner, products

FUTURE, STANDARD, THIRD_PARTY, LOCAL_PARTY, RELATIVE = range(5)


class Member(NamedTuple):
    """One import statement of the block: its section and its key inside the section."""

    section: int
    key: tuple[object, ...]
    node: cst.SimpleStatementLine


def natural(text: str) -> tuple[tuple[int, int], ...]:
    """Sort key in which numbers compare as numbers."""
    parts = re.findall(r"\d+|\D", text)
    return tuple((ord("0"), int(part)) if part[0].isdigit() else (ord(part), 0) for part in parts)


def member_key(name: str) -> tuple[object, ...]:
    """Order of names inside one import: a star, constants, classes, functions."""
    kind = -1 if name == "*" else 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
    return kind, natural(name.lower()), natural(name)


def section(module: str, path: str) -> int:
    """The isort section of an absolute module, seen from a file."""
    head = module.split(".")[0]
    if head == "__future__":
        return FUTURE
    if head in sys.stdlib_module_names:
        return STANDARD
    roots = _first_party(path)
    return LOCAL_PARTY if any(module == root or module.startswith(root + ".") for root in roots) else THIRD_PARTY


def _first_party(path: str) -> list[str]:
    """What files there import as their own; a repository's whole folder only seen from inside of it."""
    around = owner(path)
    own = [known.own for known in products().values() if not known.repository or known == around]
    return [*(folder.replace("/", ".") for folder in own), "tests"]


def _lines_after(tree: Tree, following: cst.CSTNode | None) -> int:
    """Blank lines below the imports: two above a definition, and always where the product is formatted so."""
    around = owner(tree.path)
    return 2 if (around and around.spaced) or isinstance(following, (cst.FunctionDef, cst.ClassDef)) else 1


def _blocks(tree: Tree) -> list[list[Member]]:
    """The runs of import statements at the head of the file, parted by guarded ones and conditions."""
    runs: list[list[Member]] = [[]]
    for node in tree.module.body:
        members = runs[-1]
        first = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
        if isinstance(first, cst.ImportFrom) and isinstance(node, cst.SimpleStatementLine):
            module = tree.absolute(first)
            names = "*" if isinstance(first.names, cst.ImportStar) else dotted(first.names[0].name)
            place = RELATIVE if first.relative else section(module, tree.path)
            members.append(Member(place, (1, _module_key(module), member_key(names)), node))
        elif isinstance(first, cst.Import) and isinstance(node, cst.SimpleStatementLine):
            module = dotted(first.names[0].name)
            members.append(Member(section(module, tree.path), (0, _module_key(module), ()), node))
        elif isinstance(node, (cst.Try, cst.If)):
            runs.append([])
        elif any(runs):
            break
    return [members for members in runs if members]


def _block(tree: Tree, place: int) -> list[Member]:
    """The first run that has a section, else the first of all."""
    runs = _blocks(tree)
    return next((run for run in runs if any(member.section == place for member in run)), runs[0] if runs else [])


def _module_key(module: str) -> tuple[object, ...]:
    return natural(module.lower()), natural(module)


def add_import(edit: AddImport, tree: Tree) -> Splice | None:
    """Done already if the top level of the file imports all names from the module, under their own names."""
    missing = set(edit.names)
    host: cst.ImportFrom | None = None
    for node in tree.module.body:
        body = node.body if isinstance(node, cst.SimpleStatementLine) else ()
        for small in body:
            if not isinstance(small, cst.ImportFrom) or tree.absolute(small) != edit.module:
                continue
            if isinstance(small.names, cst.ImportStar):
                continue
            missing -= {dotted(alias.name) for alias in small.names if not alias.asname}
            if host is None and not any(alias.asname for alias in small.names) and len(body) == 1:
                host = small
    if not missing:
        return None
    names = sorted(missing, key=member_key)
    return _merge(tree, host, names) if host is not None else _place(tree, edit.module, names)


def remove_import(edit: RemoveImport, tree: Tree) -> Splice | None:
    """Done already if the top level of the file imports none of the names from the module."""
    for node in tree.module.body:
        small = node.body[0] if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 else None
        if not isinstance(small, cst.ImportFrom) or tree.absolute(small) != edit.module:
            continue
        if isinstance(small.names, cst.ImportStar) or any(alias.asname for alias in small.names):
            continue
        names = [dotted(alias.name) for alias in small.names]
        left = [name for name in names if name not in edit.names]
        if left == names:
            continue
        start, end = tree.span(small)
        if not left:
            return Splice(tree.line_start(start), tree.line_end(end), b"")
        if b"#" in tree.data[start:end]:
            raise tree.drift(f"import from {edit.module} without comments between its names", [small], near=small)
        head = re.match(r"from\s+[\w.]+\s+import", tree.data[start:end].decode())
        assert head is not None
        return Splice(start, end, _statement(tree, head[0], left).encode())
    return None


def _statement(tree: Tree, head: str, names: Sequence[str], comment: str = "") -> str:
    """An import on one line, or one name per line where that is too long."""
    one = f"{head} {', '.join(names)}{comment}"
    if len(one) <= tree.line_length:
        return one
    lines = [f"{head} ({comment}", *(f"{tree.unit}{name}," for name in names), ")"]
    return tree.newline.join(lines)


def _merge(tree: Tree, node: cst.ImportFrom, names: Sequence[str]) -> Splice:
    assert not isinstance(node.names, cst.ImportStar)
    start, end = tree.span(node)
    source = tree.data[start:end].decode()
    aliases = [(dotted(alias.name), tree.span(alias.name)[0]) for alias in node.names]
    own_lines = all(tree.data[tree.line_start(offset) : offset].strip() == b"" for _, offset in aliases) and re.search(
        r",\s*(#.*)?\s*\)$", source
    )
    if own_lines:
        return _merge_lines(tree, aliases, names)
    if "#" in source:
        raise tree.drift(f"import from {tree.absolute(node)} without comments between its names", [node], near=node)
    head = re.match(r"from\s+[\w.]+\s+import", source)
    assert head is not None
    merged = sorted({*names, *(name for name, _ in aliases)}, key=member_key)
    line_end = tree.line_end(end)
    comment = tree.data[end:line_end].decode().rstrip()
    return Splice(start, end + len(comment.encode()), _statement(tree, head[0], merged, comment).encode())


def _merge_lines(tree: Tree, aliases: list[tuple[str, int]], names: Sequence[str]) -> Splice:
    """New lines among names of one line each; the lines in between are taken along, so that it is one splice."""
    lines: list[tuple[int, str]] = []
    for name in names:
        later = [offset for other, offset in aliases if member_key(other) > member_key(name)]
        offset = _above_comments(tree, later[0]) if later else tree.line_end(aliases[-1][1])
        lines.append((offset, f"{tree.indent(aliases[0][1])}{name},{tree.newline}"))
    first, last = min(lines)[0], max(lines)[0]
    new, at = "", first
    for offset, line in lines:
        new += tree.data[at:offset].decode() + line
        at = offset
    return Splice(first, last, new.encode())


def _above_comments(tree: Tree, offset: int) -> int:
    """Start of the line of a name in parentheses, comment lines above it included."""
    offset = tree.line_start(offset)
    while tree.data[tree.line_start(offset - 1) : offset].strip().startswith(b"#"):
        offset = tree.line_start(offset - 1)
    return offset


def _place(tree: Tree, module: str, names: Sequence[str]) -> Splice:
    text = _statement(tree, f"from {module} import", names)
    place, key = section(module, tree.path), (1, _module_key(module), member_key(names[0]))
    block = _block(tree, place)
    if not block:
        return _first(tree, text)
    own = [member for member in block if member.section == place]
    earlier = [member for member in own if member.key < key]
    if earlier:
        return insert_lines(tree, tree.line_end(tree.span(earlier[-1].node)[1]), text)
    if own:
        offset = tree.before(own[0].node)
        commented = tree.data.startswith(b"#", offset)
        return insert_lines(tree, offset, text, below=int(commented))
    after = [member for member in block if member.section > place]
    if after:
        return insert_lines(tree, tree.before(after[0].node), text, above=1, below=1)
    below = _lines_after(tree, _following(tree, block[-1].node))
    return insert_lines(tree, tree.line_end(tree.span(block[-1].node)[1]), text, above=1, below=below)


def _following(tree: Tree, node: cst.CSTNode) -> cst.CSTNode | None:
    """The top-level statement after this one."""
    body = list(tree.module.body)
    at = body.index(node)  # type: ignore[arg-type]
    return body[at + 1] if at + 1 < len(body) else None


def _first(tree: Tree, text: str) -> Splice:
    """The first import of a file: under its docstring, else above its first statement."""
    body = tree.module.body
    if not body:
        return insert_lines(tree, len(tree.data), text, above=1)
    if tree.module.get_docstring(clean=False) is not None:
        below = _lines_after(tree, _following(tree, body[0]))
        return insert_lines(tree, tree.behind(body[0]), text, above=1, below=below)
    return insert_lines(tree, tree.before(body[0]), text, above=1, below=_lines_after(tree, body[0]))
