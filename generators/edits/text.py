"""Insert paragraphs into a text file."""

from __future__ import annotations

from skillgen.edits.tree import BOM
from skillgen.errors import AnchorDrift
from skillgen.model import AddText


def add_text(edit: AddText, source: bytes, *, verified: str = "") -> bytes:
    """Done already if the text stands in the file, whatever its line endings."""
    newline = b"\r\n" if b"\r\n" in source else b"\n"
    text = edit.text.strip("\n").encode()
    if b"\n" + text + b"\n" in b"\n" + source.removeprefix(BOM).replace(b"\r\n", b"\n") + b"\n":
        return source
    text = text.replace(b"\n", newline)
    lines = source.splitlines(keepends=True)
    if edit.before is None:
        ended = source.endswith(b"\n") or not source
        end = b"" if ended else newline
        blank = newline if source.strip() and (lines[-1].strip() or not ended) else b""
        return source + end + blank + text + (newline if ended else b"")
    wanted = edit.before.rstrip().encode()
    found = [index for index, line in enumerate(lines) if line.removeprefix(BOM).rstrip() == wanted]
    if len(found) != 1:
        several = f" ({len(found)} matches)" if found else ""
        near = tuple(f"{edit.path}:{index + 1}" for index in found or _nearest(wanted, lines))
        raise AnchorDrift(f"line `{edit.before}`{several}", where=edit.path, verified=verified, nearest=near)
    index = found[0]
    bom = BOM if index == 0 and source.startswith(BOM) else b""
    head = b"".join(lines[:index]) or bom
    tail = b"".join(lines[index:]).removeprefix(bom)
    above = newline if index and lines[index - 1].strip() else b""
    return head + above + text + newline + newline + tail


def _nearest(wanted: bytes, lines: list[bytes]) -> list[int]:
    import difflib

    texts = [line.strip().decode("utf-8", "replace") for line in lines]
    close = difflib.get_close_matches(wanted.decode(), {text for text in texts if text}, n=3, cutoff=0.5)
    return [texts.index(text) for text in close]
