"""Add an item to a top-level list or tuple."""

from __future__ import annotations

import pytest

from skillgen.kernel.model import AddItem
from tests.edits.rewriting import PATH, check, check_drift, check_noop


def item(after: str = '"b"', name: str = "KEYS") -> AddItem:
    return AddItem(path=PATH, name=name, code='"new"', after=after)


LINES = """\
KEYS: tuple[str, ...] = (
    "a",
    # the second
    "b",  # b
    "c",
)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(LINES, LINES.replace("# b\n", '# b\n    "new",\n'), id="one per line, comments stay"),
        pytest.param('KEYS = ("a", "b", "c")\n', 'KEYS = ("a", "b", "new", "c")\n', id="on one line"),
        pytest.param('KEYS = ["a", "b"]\n', 'KEYS = ["a", "b", "new"]\n', id="a list"),
        pytest.param(
            'KEYS = [\n    "b",\n    "c",\n]\n',
            'KEYS = [\n    "b",\n    "new",\n    "c",\n]\n',
            id="a list, one per line",
        ),
        pytest.param('KEYS = ("a", "b")\n', 'KEYS = ("a", "b", "new")\n', id="last"),
        pytest.param(
            'if True:\n    KEYS = (\n        "b",\n    )\n',
            'if True:\n    KEYS = (\n        "b",\n        "new",\n    )\n',
            id="below a condition",
        ),
    ],
)
def test_added(before: str, after: str) -> None:
    check(item(), before, after)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param('KEYS = ("new",)\n', id="there, the item before it gone"),
        pytest.param("KEYS = ('b', 'new')\n", id="there with other quotes"),
    ],
)
def test_noop(source: str) -> None:
    check_noop(item(), source)


@pytest.mark.parametrize(
    ("source", "sought", "nearest"),
    [
        pytest.param('KEY = ("a", "b")\n', "tuple KEYS", [1], id="renamed"),
        pytest.param("KEYS = keys()\n", "tuple KEYS", [1], id="not a display"),
        pytest.param('KEYS = ("a", "bb")\n', 'item "b" of KEYS', [1], id="item renamed"),
        pytest.param('KEYS = "a", "b"\n', "tuple KEYS", [1], id="no parentheses"),
        pytest.param('def f():\n    KEYS = ("b",)\n', "tuple KEYS", [], id="not at the top level"),
    ],
)
def test_drift(source: str, sought: str, nearest: list[int]) -> None:
    check_drift(item(), source, sought, nearest)
