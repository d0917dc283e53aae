"""Keep *.dist-info/RECORD true: the rows of patched files, in the file's own style."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Mapping


def row(path: str, content: bytes) -> str:
    """The RECORD row of a file, without line ending: path, urlsafe sha256 without padding, size."""
    checksum = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode("ascii")
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow((path, f"sha256={checksum}", len(content)))
    return buffer.getvalue()


def rows(record: bytes) -> dict[str, str]:
    """Path to row as it stands, without line ending."""
    found = (line.rstrip("\r\n") for line in _lines(record))
    return {next(csv.reader([text]))[0]: text for text in found if text}


def update(record: bytes, wanted: Mapping[str, str | None]) -> bytes:
    """RECORD with the given rows; None removes one. New rows go before RECORD's own row, else to the top."""
    lines = _lines(record)
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    left = dict(wanted)
    result: list[str] = []
    own = 0
    for line in lines:
        text = line.rstrip("\r\n")
        path = next(csv.reader([text]))[0] if text else ""
        new = left.pop(path, text)
        if path.endswith(".dist-info/RECORD"):
            own = len(result)
        if new is not None:
            result.append(new + line[len(text) :])
    result[own:own] = [new + ending for new in left.values() if new is not None]
    return "".join(result).encode("utf-8")


def _lines(record: bytes) -> list[str]:
    return [line.decode("utf-8") for line in record.splitlines(keepends=True)]
