"""Insert paragraphs into a text file."""

from __future__ import annotations

import difflib
from codecs import BOM_UTF8 as BOM

from skillgen.errors import AnchorDrift
from skillgen.model import AddText


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


def _nearest(wanted: bytes, lines: list[bytes]) -> list[int]:
    texts = [line.strip().decode("utf-8", "replace") for line in lines]
    close = difflib.get_close_matches(wanted.decode(), {text for text in texts if text}, n=3, cutoff=0.5)
    return [texts.index(text) for text in close]
