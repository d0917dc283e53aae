"""Insert before, insert after and replace a statement."""

from __future__ import annotations

import pytest

from skillgen.edits import apply_edits
from skillgen.kernel.model import InsertAfter, InsertBefore, ReplaceStatement
from tests.edits.rewriting import PATH, check, check_drift, check_noop

MODEL = '''\
class Model:
    """A model."""

    def forward(self, pixels, *, sizes=None):
        # features first
        rows = self.encode(
            pixels, sizes=sizes
        )  # [n, d]
        if rows is not None:
            rows = rows * 2
            # the block's last comment

        return self.join(rows)
'''


def before(anchor: str, code: str, function: str = "Model.forward") -> InsertBefore:
    return InsertBefore(path=PATH, function=function, anchor=anchor, code=code)


def after(anchor: str, code: str, function: str = "Model.forward") -> InsertAfter:
    return InsertAfter(path=PATH, function=function, anchor=anchor, code=code)


def replace(anchor: str, code: str, function: str = "Model.forward") -> ReplaceStatement:
    return ReplaceStatement(path=PATH, function=function, anchor=anchor, code=code)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(before("call:self.join", "rows = rows * 2", "twice"), id="code stands before the anchor"),
        pytest.param(after("a = 1", "b = 2", "pair"), id="code stands after the anchor, a statement in between"),
        pytest.param(after("a = 1", "b = (2)  # two", "pair"), id="code stands there in another format"),
        pytest.param(
            before("call:gone", "a = 1\nc = 3", "pair"), id="the anchor was replaced since, the code is there"
        ),
        pytest.param(replace("call:gone", "b = 2", "pair"), id="replaced already"),
        pytest.param(
            replace("a = 1", "if x:\n    a = 1\nelse:\n    a = 2", "branch"), id="the anchor is our own code"
        ),
    ],
)
def test_noop(edit: InsertBefore | InsertAfter | ReplaceStatement) -> None:
    check_noop(
        edit,
        "def twice(self, rows):\n    rows = rows * 2\n    return self.join(rows)\n\n\n"
        "def pair():\n    a = 1\n    c = 3\n    b = 2\n    return a, b, c\n\n\n"
        "def branch(x):\n    if x:\n        a = 1\n    else:\n        a = 2\n    return a\n",
    )


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        pytest.param(
            before("call:self.encode", "if sizes is None:\n    sizes = [1]"),
            "        # features first\n",
            "        if sizes is None:\n            sizes = [1]\n        # features first\n",
            id="above the comment of the anchor",
        ),
        pytest.param(
            after("call:self.encode", "rows = rows + 1"),
            "        )  # [n, d]\n",
            "        )  # [n, d]\n        rows = rows + 1\n",
            id="below a statement of several lines and its comment",
        ),
        pytest.param(
            after("if rows is not None:\n    rows = rows * 2", "rows = rows + 1"),
            "            # the block's last comment\n",
            "            # the block's last comment\n        rows = rows + 1\n",
            id="below a block and its last comment",
        ),
        pytest.param(
            after("rows = rows*2", "rows += 1"),
            "            rows = rows * 2\n            # the block's last comment\n",
            "            rows = rows * 2\n            rows += 1\n            # the block's last comment\n",
            id="in a nested block",
        ),
        pytest.param(
            after("return self.join(rows)", "assert False"),
            "        return self.join(rows)\n",
            "        return self.join(rows)\n        assert False\n",
            id="at the end of the file",
        ),
        pytest.param(
            before("return self.join((rows))", "\n\nrows = rows + 1\n\n"),
            "\n        return self.join(rows)\n",
            "\n        rows = rows + 1\n\n        return self.join(rows)\n",
            id="with blank lines, none doubled",
        ),
        pytest.param(
            before("rows = self.encode(pixels, sizes=sizes)", "# why\n'''a\n  b'''\nx = f('''\na\n    b''')"),
            "        # features first\n",
            "        # why\n        '''a\n          b'''\n        x = f('''\na\n    b''')\n        # features first\n",
            id="white space of multi-line data is kept",
        ),
        pytest.param(
            before("rows = self.encode(pixels, sizes=sizes)", "x = f(\n    'a'\n    f'{b}'\n    'c'\n)"),
            "        # features first\n",
            "        x = f(\n            'a'\n            f'{b}'\n            'c'\n        )\n"
            "        # features first\n",
            id="strings joined over several lines",
        ),
        pytest.param(
            replace("rows = rows * 2", "if sizes:\n    rows = rows * 2\nelse:\n    rows = rows * 3"),
            "            rows = rows * 2\n",
            "            if sizes:\n                rows = rows * 2\n"
            "            else:\n                rows = rows * 3\n",
            id="replaced by code that contains it",
        ),
        pytest.param(
            replace("call:self.encode", "rows = self.shard(pixels, sizes)"),
            "        rows = self.encode(\n            pixels, sizes=sizes\n        )  # [n, d]\n",
            "        rows = self.shard(pixels, sizes)  # [n, d]\n",
            id="replaced, its comment kept",
        ),
    ],
)
def test_change(edit: InsertBefore | InsertAfter | ReplaceStatement, old: str, new: str) -> None:
    assert MODEL.count(old) == 1
    dresses = ("plain", "bom", "unended") if "'''" in new else ("plain", "crlf", "bom", "tabs", "unended", "all")
    check(edit, MODEL, MODEL.replace(old, new), dresses=dresses)


ANCHORS = """\
import torch as th
from torch import cat


@staticmethod
async def outer(x):
    def inner(y):
        y = cat(y)
        return y

    if cat(x):
        x = await th.stack(x)
    elif th.sum(x):
        x = 1
    x = x
    x = x
    return inner(x)


def one(x): return cat(x)
"""


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        pytest.param(
            before("call:torch.stack", "pass", "outer"),
            "        x = await",
            "        pass\n        x = await",
            id="module alias",
        ),
        pytest.param(
            before("call:torch.cat", "pass", "outer"), "    if cat", "    pass\n    if cat", id="name from module"
        ),
        pytest.param(
            before("call:torch.cat", "pass", "outer.inner"),
            "        y = cat",
            "        pass\n        y = cat",
            id="nested function",
        ),
        pytest.param(
            before("call:th.sum", "pass", "outer"), "    if cat", "    pass\n    if cat", id="elif is part of its if"
        ),
        pytest.param(
            after("y = cat(y)", "pass", "outer.<locals>.inner"),
            "cat(y)\n",
            "cat(y)\n        pass\n",
            id="qualified name as Python writes it",
        ),
    ],
)
def test_anchor(edit: InsertBefore | InsertAfter, old: str, new: str) -> None:
    check(edit, ANCHORS, ANCHORS.replace(old, new))


@pytest.mark.parametrize(
    ("edit", "sought", "nearest"),
    [
        pytest.param(before("x = x", "pass", "outer"), "`x = x` in outer (2 matches)", [15, 16], id="twice"),
        pytest.param(before("y = cat(y)", "pass", "outer"), "`y = cat(y)` in outer", [8], id="in a nested function"),
        pytest.param(before("call:numpy.stack", "pass", "outer"), "call:numpy.stack", [12], id="of another module"),
        pytest.param(before("call:th.summ", "pass", "outer"), "call:th.summ", [13, 12], id="misspelled call"),
        pytest.param(before("return cat(x)", "pass", "one"), "`return cat(x)` in one", [], id="suite on one line"),
        pytest.param(before("x = x", "pass", "inner"), "function inner", [7], id="function is nested elsewhere"),
        pytest.param(before("x = x", "pass", "Model.outr"), "function Model.outr", [6], id="no such function"),
        pytest.param(replace("x = 3", "x = 4", "outer"), "`x = 3` in outer", [14, 15, 16], id="replaced: other code"),
    ],
)
def test_drift(edit: InsertBefore | ReplaceStatement, sought: str, nearest: list[int]) -> None:
    check_drift(edit, ANCHORS, sought, nearest)


def test_drift_of_a_function_defined_twice() -> None:
    source = "if a:\n    def f():\n        x = 1\nelse:\n    def f():\n        x = 1\n"
    check_drift(before("x = 1", "pass", "f"), source, "function f (defined 2 times)", [2, 5])


def test_the_same_code_at_two_anchors() -> None:
    edits = [before("a = 1", "check()", "f"), before("b = 2", "check()", "f")]
    both = "def f():\n    check()\n    a = 1\n    check()\n    b = 2\n"
    check(edits, "def f():\n    a = 1\n    b = 2\n", both)
    check(edits, "def f():\n    check()\n    a = 1\n    b = 2\n", both)


def test_an_edit_sees_those_before_it() -> None:
    edits = [after("a = 1", "b = 2", "f"), after("b = 2", "c = 3", "f"), after("a = 1", "z = 0", "f")]
    check(edits, "def f():\n    a = 1\n", "def f():\n    a = 1\n    z = 0\n    b = 2\n    c = 3\n")


def test_insertions_at_one_place_come_one_after_the_other() -> None:
    edits = [after("a = 1", code, "f") for code in ("m = 1", "b = 2", "z = 3")]
    check(edits, "def f():\n    a = 1\n", "def f():\n    a = 1\n    z = 3\n    b = 2\n    m = 1\n")


def test_code_that_is_no_statement_is_a_bug_of_the_adapter() -> None:
    with pytest.raises(ValueError, match="no statement"):
        apply_edits(MODEL.encode(), [before("call:self.join", "# only a comment")], path=PATH)
    with pytest.raises(ValueError, match="does not parse"):
        apply_edits(MODEL.encode(), [before("call:self.join", "a = (")], path=PATH)
    with pytest.raises(ValueError, match="one statement"):
        apply_edits(MODEL.encode(), [before("a = 1\nb = 2", "a = 1")], path=PATH)


def test_an_if_is_found_by_its_condition() -> None:
    new = MODEL.replace("        if rows is not None:", "        rows = rows + 1\n        if rows is not None:")
    check(before("if:(rows) is not  None", "rows = rows + 1"), MODEL, new)


def test_an_if_of_another_condition_is_drift() -> None:
    check_drift(before("if:row is not None", "rows = 1"), MODEL, "statement `if:row is not None`", [9])
