"""The layout of files that a patch brings along."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillgen.techniques.shared.vendoring import header, one_line_below_imports


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        pytest.param("\n\n\nX = 1\n", "\n\nX = 1\n", id="a statement"),
        pytest.param("\n\n\n# why\nX = 1\n", "\n\n# why\nX = 1\n", id="a comment"),
        pytest.param("\n\n\n@deco\ndef f():\n    pass\n", "\n\n\n@deco\ndef f():\n    pass\n", id="a definition"),
    ],
)
def test_blank_lines_below_imports(below: str, expected: str) -> None:
    source = '"""Doc."""\n\nfrom a import (\n    b,\n)'
    assert one_line_below_imports(source + below) == source + expected
    assert one_line_below_imports(source + expected) == source + expected


def test_a_source_without_imports_stays() -> None:
    assert one_line_below_imports('"""Doc."""\n\n\nX = 1\n') == '"""Doc."""\n\n\nX = 1\n'


def test_header_is_the_targets_own_for_this_year(tmp_path: Path) -> None:
    source = tmp_path / "config.py"
    assert header(source) == ""
    source.write_text("# Copyright (c) 2020, X. Since 2019.\n# Terms.\n\nA = 1\n# not this\n")
    assert header(source) == "# Copyright (c) 2026, X. Since 2019.\n# Terms.\n\n"
