"""Check edits in every dress that a file may wear: line endings, tabs, byte order mark, no newline at the end."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

import pytest

from skillgen.edits import apply_edits
from skillgen.kernel.errors import DRIFT, AnchorDrift
from skillgen.kernel.model import Edit

PATH = "src/megatron/bridge/models/toy/modeling_toy.py"


def _tabs(text: str) -> str:
    return re.sub(r"^(?:    )+", lambda found: "\t" * (len(found[0]) // 4), text, flags=re.M)


DRESSES: dict[str, Callable[[str], bytes]] = {
    "plain": lambda text: text.encode(),
    "crlf": lambda text: text.replace("\n", "\r\n").encode(),
    "bom": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "tabs": lambda text: _tabs(text).encode(),
    "unended": lambda text: text.removesuffix("\n").encode(),
    "all": lambda text: b"\xef\xbb\xbf" + _tabs(text).removesuffix("\n").replace("\n", "\r\n").encode(),
}


def check(edits: Edit | Sequence[Edit], before: str, after: str, *, dresses: Sequence[str] = tuple(DRESSES)) -> None:
    """`before` becomes `after`, which parses and stays as it is when the edits are applied again."""
    ast.parse(after)
    edits = [edits] if isinstance(edits, Edit) else edits
    for name in dresses:
        source, wanted = DRESSES[name](before), DRESSES[name](after)
        result = apply_edits(source, edits, path=PATH)
        assert result.decode() == wanted.decode(), name
        assert apply_edits(result, edits, path=PATH) == result, name


def check_noop(edits: Edit | Sequence[Edit], source: str) -> None:
    check(edits, source, source)


def check_drift(edits: Edit | Sequence[Edit], source: str, sought: str, nearest: Sequence[int]) -> None:
    """The edits do not fit: the report names what was sought and the lines that come nearest."""
    edits = [edits] if isinstance(edits, Edit) else edits
    with pytest.raises(AnchorDrift) as caught:
        apply_edits(source.encode(), edits, path=PATH)
    assert caught.value.exit_code == DRIFT
    assert sought in caught.value.sought
    assert caught.value.nearest == tuple(f"{PATH}:{line}" for line in nearest)
    assert caught.value.where.startswith(PATH)
