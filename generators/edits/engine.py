"""Apply code edits to one file: locate on the syntax tree, splice the bytes, check the result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from skillgen.edits.calls import add_parameter, pass_keyword, replace_callee
from skillgen.edits.classes import add_definition, add_field, add_method
from skillgen.edits.expressions import add_context, replace_expression, replace_words
from skillgen.edits.imports import add_import, remove_import
from skillgen.edits.items import add_tuple_item
from skillgen.edits.splice import Splice, splice
from skillgen.edits.statements import insert, replace
from skillgen.edits.tree import Tree
from skillgen.kernel.errors import AnchorDrift, SkillgenError
from skillgen.kernel.model import (
    AddContext,
    AddDefinition,
    AddField,
    AddImport,
    AddItem,
    AddMethod,
    AddParameter,
    Edit,
    InsertAfter,
    InsertBefore,
    PassKeyword,
    RemoveImport,
    ReplaceCallee,
    ReplaceExpression,
    ReplaceStatement,
    ReplaceWords,
)

LOCATE: dict[type[Edit], Callable[[Any, Tree], Splice | None]] = {
    AddContext: add_context,
    AddDefinition: add_definition,
    AddField: add_field,
    AddImport: add_import,
    AddItem: add_tuple_item,
    AddMethod: add_method,
    AddParameter: add_parameter,
    InsertAfter: insert,
    InsertBefore: insert,
    PassKeyword: pass_keyword,
    RemoveImport: remove_import,
    ReplaceCallee: replace_callee,
    ReplaceExpression: replace_expression,
    ReplaceStatement: replace,
    ReplaceWords: replace_words,
}

_KNOWN: dict[tuple[bytes, tuple[object, ...]], bytes] = {}


def apply_code(source: bytes, edits: Sequence[Edit], *, path: str, line_length: int, verified: str) -> bytes:
    """Edits that do not meet share one parse; the result is parsed again and has to hold every edit already.

    Families share files, and a plan is replayed on them: what these edits make of this text is found out once.
    """
    asked = (path, line_length, *edits)
    known = _KNOWN.get((source, asked))
    if known is not None:
        return known
    result = _apply_code(source, edits, path, line_length, verified)
    if len(_KNOWN) > 500:
        _KNOWN.clear()
    _KNOWN[source, asked] = _KNOWN[result, asked] = result
    return result


def _apply_code(source: bytes, edits: Sequence[Edit], path: str, line_length: int, verified: str) -> bytes:
    pending = list(edits)
    result = source
    while pending:
        tree = Tree(result, path, edits=edits, line_length=line_length, verified=verified)
        splices: list[Splice] = []
        while pending:
            try:
                new = LOCATE[type(pending[0])](pending[0], tree)
            except AnchorDrift:
                if not splices:
                    raise
                break  # its anchor may be what an edit of this round brings
            if new and any(new.meets(other) for other in splices):
                break
            splices += [new] if new else []
            pending.pop(0)
        result = tree.encode(splice(tree.data, splices)) if splices else result
    if result != source:
        _check(source, result, edits, path, line_length, verified)
    return result


def _check(source: bytes, result: bytes, edits: Sequence[Edit], path: str, line_length: int, verified: str) -> None:
    try:
        tree = Tree(result, path, edits=edits, line_length=line_length, verified=verified)
        flaw = _flaw(result, path)
    except SkillgenError as error:
        tree, flaw = None, error.message
    if tree is None or (flaw and not _flaw(source, path)):
        raise SkillgenError("invalid-result", f"the edits break {path}: {flaw}", where=path)
    for edit in edits:
        try:
            done = LOCATE[type(edit)](edit, tree) is None
        except AnchorDrift:
            done = False
        if not done:
            name = type(edit).__name__
            raise SkillgenError("unstable-edit", f"{name} does not find its own result in {path}: {edit}", where=path)


def _flaw(source: bytes, path: str) -> str:
    """Why the file does not compile; a file that never did may be of a newer Python than this one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return str(error)
    return ""
