"""Insert paragraphs into text files."""

from __future__ import annotations

import pytest

from skillgen.edits import apply_edits
from skillgen.kernel.errors import AnchorDrift
from skillgen.kernel.model import AddText, ReplaceText

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


PAGE = "# T\n\nOnly on this path:\n\n- one\n- two\n\n## Next\n"


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        pytest.param("- one", "- three", PAGE.replace("- one", "- three"), id="a line"),
        pytest.param("Only on this path:\n...\n- two", "Anywhere.", "# T\n\nAnywhere.\n\n## Next\n", id="a passage"),
        pytest.param("- gone", "- one", PAGE, id="there already"),
    ],
)
def test_replaced_lines(old: str, new: str, after: str) -> None:
    edit = ReplaceText(path=PATH, old=old, new=new)
    for newline in ("\n", "\r\n"):
        result = apply_edits(PAGE.replace("\n", newline).encode(), [edit], path=PATH)
        assert result == after.replace("\n", newline).encode()
        assert apply_edits(result, [edit], path=PATH) == result


@pytest.mark.parametrize(
    ("old", "nearest"),
    [
        pytest.param("- ones", [5], id="other words"),
        pytest.param("", [2, 4, 7], id="several times"),
        pytest.param("- two\n...\n- one", [6], id="other order"),
    ],
)
def test_lines_that_are_not_there_once(old: str, nearest: list[int]) -> None:
    with pytest.raises(AnchorDrift) as caught:
        apply_edits(PAGE.encode(), [ReplaceText(path=PATH, old=old, new="x")], path=PATH)
    assert caught.value.nearest[: len(nearest)] == tuple(f"{PATH}:{line}" for line in nearest)
