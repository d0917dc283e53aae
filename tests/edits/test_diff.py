"""Counting changed lines, and patches that git takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from skillgen.edits import changed_lines, unified_diff
from skillgen.kernel.model import Change


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        (b"a\nb\n", b"a\nb\n", 0),
        (b"a\nb\n", b"a\nc\nb\n", 1),
        (b"a\nb\n", b"a\nc\n", 2),
        (b"a", b"a\n", 2),
        (b"--a\n", b"++a\n", 2),
        (None, b"a\nb\n", 2),
        (b"a\nb\n", None, 2),
    ],
)
def test_changed_lines(before: bytes | None, after: bytes | None, count: int) -> None:
    assert changed_lines(before, after) == count


CASES = {
    "changed": (b"".join(b"%d\n" % i for i in range(50)), b"".join(b"%d\n" % (i + (i == 9)) for i in range(50))),
    "new": (None, b"x = 1\ny = 2\n"),
    "new without newline": (None, b"x = 1"),
    "new and empty": (None, b""),
    "deleted": (b"x = 1\n", None),
    "newline lost": (b"a\nb\n", b"a\nb"),
    "newline won": (b"a\nb", b"a\nb\n"),
    "crlf": (b"a\r\nb\r\n", b"a\r\nc\r\nb\r\n"),
    "bom": (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfa\nb\n"),
    "odd line breaks": ("a\u2028b\x0cc\n".encode(), "a\u2028b\x0cc\nd\x85e\n".encode()),
    "not utf-8": (b"\xe9\n", b"\xe9\nx\n"),
    "path with spaces": (b"a\n", b"b\n"),
}


def test_git_applies_the_patch(tmp_path: Path) -> None:
    changes = []
    for name, (before, after) in CASES.items():
        path = f"dir of x/{name}.py" if " " in name else f"dir/{name}.py"
        changes.append(Change(path, before, after))
        if before is not None:
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(before)
    patch = unified_diff([*changes, Change("same.py", b"a\n", b"a\n")]).encode("utf-8", "surrogateescape")
    assert b"same.py" not in patch
    git = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn"]
    subprocess.run([*git, "-"], input=patch, cwd=tmp_path, check=True)
    for change in changes:
        file = tmp_path / change.path
        assert (file.read_bytes() if file.exists() else None) == change.after, change.path
    subprocess.run([*git, "--reverse", "-"], input=patch, cwd=tmp_path, check=True)
    for change in changes:
        file = tmp_path / change.path
        assert (file.read_bytes() if file.exists() else None) == change.before, change.path
