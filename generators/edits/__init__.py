"""The edit engine: anchored edits in, bytes out, with every byte outside of them kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skillgen.edits.diff import changed_lines, unified_diff
from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import AddFile, AddText, Change, Edit, ReplaceText

__all__ = ["apply_edits", "changed_lines", "plan_changes", "unified_diff"]


def apply_edits(
    source: bytes, edits: Sequence[Edit], *, path: str, line_length: int = 119, verified: str = ""
) -> bytes:
    """The file after all edits, each seeing the result of those before it; an edit that is there already does nothing.

    `verified` names what the anchors were last verified against, for the report of an AnchorDrift.
    """
    code = [edit for edit in edits if not isinstance(edit, (AddText, ReplaceText))]
    if any(isinstance(edit, AddFile) for edit in code):
        raise ValueError("AddFile creates a file, it does not edit one")
    for edit in edits:
        if isinstance(edit, AddText):
            from skillgen.edits.text import add_text

            source = add_text(edit, source, verified=verified)
        elif isinstance(edit, ReplaceText):
            from skillgen.edits.text import replace_text

            source = replace_text(edit, source, verified=verified)
    if code:
        from skillgen.edits.engine import apply_code

        source = apply_code(source, code, path=path, line_length=line_length, verified=verified)
    return source


def plan_changes(
    edits: Sequence[Edit], read: Callable[[str], bytes | None], *, line_length: int = 119, verified: str = ""
) -> tuple[Change, ...]:
    """What the edits do to the files of a target, in the order in which files are first named; no-ops left out."""
    changes = []
    for path in dict.fromkeys(edit.path for edit in edits):
        before = read(path)
        after = before
        rest = [edit for edit in edits if edit.path == path]
        for edit in [edit for edit in rest if isinstance(edit, AddFile)]:
            rest.remove(edit)
            content = edit.content.encode()
            if after is not None and after.replace(b"\r\n", b"\n") != content:
                raise SkillgenError("file-exists", f"{path} is there with other content", where=path)
            after = content if after is None else after
        if after is None:
            raise SkillgenError("file-missing", f"{path} is not there", where=path, exit_code=4)
        after = apply_edits(after, rest, path=path, line_length=line_length, verified=verified) if rest else after
        if after != before:
            changes.append(Change(path, before, after))
    return tuple(changes)
