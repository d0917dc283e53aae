"""Insert paragraphs into a text file, and replace lines of one."""

from __future__ import annotations

import difflib
from codecs import BOM_UTF8 as BOM

from skillgen.kernel.errors import AnchorDrift
from skillgen.kernel.model import AddText, ReplaceText


def add_text(edit: AddText, source: bytes, *, verified: str = "") -> bytes:
    """Done already if the text stands in the file, whatever its line endings."""
    bom, body = (BOM, source.removeprefix(BOM)) if source.startswith(BOM) else (b"", source)
    newline = b"\r\n" if b"\r\n" in body else b"\n"
    text = edit.text.strip("\n").encode()
    if b"\n" + text + b"\n" in b"\n" + body.replace(b"\r\n", b"\n") + b"\n":
        return source
    text = text.replace(b"\n", newline)
    lines = body.splitlines(keepends=True)
    if edit.before is None:
        ended = body.endswith(b"\n") or not body
        end = b"" if ended else newline
        blank = newline if lines and lines[-1].strip() else b""
        return source + end + blank + text + (newline if ended else b"")
    wanted = edit.before.rstrip().encode()
    found = [index for index, line in enumerate(lines) if line.rstrip() == wanted]
    if len(found) != 1:
        several = f" ({len(found)} matches)" if found else ""
        near = tuple(f"{edit.path}:{index + 1}" for index in found or _nearest(wanted, lines))
        raise AnchorDrift(f"line `{edit.before}`{several}", where=edit.path, verified=verified, nearest=near)
    head, tail = lines[: found[0]], lines[found[0] :]
    above = newline if head and head[-1].strip() else b""
    return bom + b"".join(head) + above + text + newline + newline + b"".join(tail)


def replace_text(edit: ReplaceText, source: bytes, *, verified: str = "") -> bytes:
    """Done already if the new lines stand in the file and the old ones do not, whatever its line endings."""
    newline = b"\r\n" if b"\r\n" in source else b"\n"
    lines = source.split(newline)
    old, new = (text.strip("\n").encode().split(b"\n") for text in (edit.old, edit.new))
    found = _runs(lines, old)
    if not found and _runs(lines, new):
        return source
    if len(found) != 1:
        several = f" ({len(found)} matches)" if found else ""
        near = tuple(f"{edit.path}:{first + 1}" for first, _ in found) or tuple(
            f"{edit.path}:{index + 1}" for index in _nearest(old[0], lines)
        )
        sought = f"lines from `{old[0].decode()}` to `{old[-1].decode()}`{several}"
        raise AnchorDrift(sought, where=edit.path, verified=verified, nearest=near)
    first, end = found[0]
    return newline.join([*lines[:first], *new, *lines[end:]])


def _runs(lines: list[bytes], wanted: list[bytes]) -> list[tuple[int, int]]:
    """Where the wanted lines stand one after the other, as the first line and the one behind the last."""
    ends = ((first, _end(lines, first, wanted)) for first in range(len(lines)))
    return [(first, end) for first, end in ends if end is not None]


def _end(lines: list[bytes], at: int, wanted: list[bytes]) -> int | None:
    for index, line in enumerate(wanted):
        if line == b"...":
            rest = wanted[index + 1 :]
            return next((end for later in range(at, len(lines)) if (end := _end(lines, later, rest))), None)
        if at >= len(lines) or lines[at].rstrip() != line.rstrip():
            return None
        at += 1
    return at


def _nearest(wanted: bytes, lines: list[bytes]) -> list[int]:
    texts = [line.strip().decode("utf-8", "replace") for line in lines]
    close = difflib.get_close_matches(wanted.decode(), {text for text in texts if text}, n=3, cutoff=0.5)
    return [texts.index(text) for text in close]
