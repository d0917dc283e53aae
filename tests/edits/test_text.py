"""Insert paragraphs into text files."""

from __future__ import annotations

import pytest

from skillgen.edits import apply_edits
from skillgen.errors import AnchorDrift
from skillgen.model import AddText

PATH = "docs/models/toy.md"


def add(text: str, before: str | None = "## Next") -> AddText:
    return AddText(path=PATH, text=text, before=before)


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        pytest.param(add("New."), "# T\n\n## Next\n", "# T\n\nNew.\n\n## Next\n", id="before a heading"),
        pytest.param(
            add("A.\n\nB.\n"), "# T\n## Next  \nx\n", "# T\n\nA.\n\nB.\n\n## Next  \nx\n", id="no blank line"
        ),
        pytest.param(add("New."), "## Next\n", "New.\n\n## Next\n", id="first line"),
        pytest.param(add("New.", None), "# T\n", "# T\n\nNew.\n", id="at the end"),
        pytest.param(add("New.", None), "# T\n\n", "# T\n\nNew.\n", id="at the end, blank line"),
        pytest.param(add("New.", None), "", "New.\n", id="empty file"),
        pytest.param(add("New."), "# T\n\nNew.\n\n## Next\n", "# T\n\nNew.\n\n## Next\n", id="there already"),
        pytest.param(add("New."), "## Next\n\nNewer. New.\n", "New.\n\n## Next\n\nNewer. New.\n", id="only a part"),
    ],
)
def test_text(edit: AddText, before: str, after: str) -> None:
    for newline, bom in (("\n", ""), ("\r\n", ""), ("\n", "\ufeff")):
        source, wanted = ((bom + text).replace("\n", newline).encode() for text in (before, after))
        result = apply_edits(source, [edit], path=PATH)
        assert result == (wanted if b"\n" in source else wanted.replace(b"\r\n", b"\n"))
        assert apply_edits(result, [edit], path=PATH) == result


def test_a_file_without_newline_at_the_end_stays_so() -> None:
    assert apply_edits(b"# T", [add("New.", None)], path=PATH) == b"# T\n\nNew."


@pytest.mark.parametrize(
    ("source", "nearest"),
    [
        pytest.param("# T\n\n## Nexts\n", [3], id="moved"),
        pytest.param("## Next\n\n## Next\n", [1, 3], id="twice"),
        pytest.param("", [], id="empty"),
    ],
)
def test_drift(source: str, nearest: list[int]) -> None:
    with pytest.raises(AnchorDrift) as caught:
        apply_edits(source.encode(), [add("New.")], path=PATH)
    assert caught.value.nearest == tuple(f"{PATH}:{line}" for line in nearest)
