"""Add a parameter, pass a keyword, replace a callee, and wrap lines as the formatter would."""

from __future__ import annotations

import pytest

from skillgen.edits import apply_edits
from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import AddParameter, PassKeyword, ReplaceCallee
from tests.edits.rewriting import PATH, check, check_drift, check_noop

Call = AddParameter | PassKeyword | ReplaceCallee


def param(after: str, code: str = "flag: bool = False", function: str = "f") -> AddParameter:
    return AddParameter(path=PATH, function=function, code=code, after=after)


def keyword(after: str, code: str = "flag=self.flag", call: str = "self.g") -> PassKeyword:
    return PassKeyword(path=PATH, function="f", call=call, code=code, after=after)


def callee(new: str, call: str = "self.g", within: str | None = None) -> ReplaceCallee:
    return ReplaceCallee(path=PATH, function="f", call=call, callee=new, within=within)


@pytest.mark.parametrize(
    ("edit", "source"),
    [
        pytest.param(param("a"), "def f(a, *, b=1, flag:bool=False):\n    pass\n", id="parameter there"),
        pytest.param(param("gone"), "def f(flag: bool = (False)):\n    pass\n", id="parameter there, anchor gone"),
        pytest.param(keyword("a"), "def f(self):\n    self.g(a=1, b=2, flag = self.flag)\n", id="keyword there"),
        pytest.param(callee("h"), "def f(self):\n    h(1)\n", id="callee there"),
        pytest.param(callee("wrap(self.g)"), "def f(self):\n    wrap(self.g)(1)\n", id="callee wraps the old one"),
        pytest.param(
            callee("self.h", within="x = self.g("),
            "def f(self):\n    x = self.h(1)\n    y = self.g(2)\n",
            id="callee there, the narrowing was rewritten with it",
        ),
    ],
)
def test_noop(edit: Call, source: str) -> None:
    check_noop(edit, source)


@pytest.mark.parametrize(
    ("after", "old", "new"),
    [
        pytest.param("a", "a", "a, flag: bool = False", id="only one"),
        pytest.param("a", "a: int = (1), b=2", "a: int = (1), flag: bool = False, b=2", id="before others"),
        pytest.param("a", "a, /, b=1", "a, flag: bool = False, /, b=1", id="before a slash"),
        pytest.param("a", "a, *, b", "a, flag: bool = False, *, b", id="before a star"),
        pytest.param("b", "a, *, b, **rest", "a, *, b, flag: bool = False, **rest", id="keyword only"),
        pytest.param(
            "args", "a, *args: int", "a, *args: int, flag: bool = False", id="behind the rest of positionals"
        ),
        pytest.param(
            "a", "\n    a,  # why)\n", "\n    a,  # why)\n    flag: bool = False,\n", id="one per line, comment"
        ),
        pytest.param(
            "a", "\n    a,\n    b=1,\n", "\n    a,\n    flag: bool = False,\n    b=1,\n", id="one per line, between"
        ),
        pytest.param(
            "a", "\n    a,\n    *,\n    b=1\n", "\n    a,\n    flag: bool = False,\n    *,\n    b=1\n", id="no comma"
        ),
        pytest.param(
            "a", "\n    b,\n    a=1  # x\n", "\n    b,\n    a=1,  # x\n    flag: bool = False,\n", id="last, no comma"
        ),
        pytest.param("a", "\n    a, b=1\n", "a, flag: bool = False, b=1", id="fits on one line"),
    ],
)
def test_parameter(after: str, old: str, new: str) -> None:
    check(
        param(after), f"def f({old}) -> tuple[int, int]:\n    pass\n", f"def f({new}) -> tuple[int, int]:\n    pass\n"
    )


@pytest.mark.parametrize(
    ("after", "old", "new"),
    [
        pytest.param("a", "self.g(1, a=(2))", "self.g(1, a=(2), flag=self.flag)", id="last"),
        pytest.param("a", "self.g(a=1, b=2).rows", "self.g(a=1, flag=self.flag, b=2).rows", id="between"),
        pytest.param(
            "a", "self.g(a=h(b, c=[1, 2]), **d)", "self.g(a=h(b, c=[1, 2]), flag=self.flag, **d)", id="nested"
        ),
        pytest.param("a", "h(self.g(a=1), b)", "h(self.g(a=1, flag=self.flag), b)", id="inside a call"),
        pytest.param("a", "await self.g(a=1)", "await self.g(a=1, flag=self.flag)", id="awaited"),
        pytest.param(
            "a",
            "self.g(\n        a=1,  # one\n        # two\n        b=2,\n    )",
            "self.g(\n        a=1,  # one\n        flag=self.flag,\n        # two\n        b=2,\n    )",
            id="one per line",
        ),
        pytest.param(
            "a",
            "self.g(\n        a=h(\n            1\n        ),\n    )",
            "self.g(\n        a=h(\n            1\n        ),\n        flag=self.flag,\n    )",
            id="one per line, behind an item of several lines",
        ),
        pytest.param(
            "a", "self.g(1, a=h(\n        1))", "self.g(1, a=h(\n        1), flag=self.flag)", id="item broken"
        ),
    ],
)
def test_keyword(after: str, old: str, new: str) -> None:
    check(keyword(after), f"async def f(self):\n    x = {old}  # c\n", f"async def f(self):\n    x = {new}  # c\n")


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        pytest.param(callee("self.h"), "x = self.g(a, b=1)", "x = self.h(a, b=1)", id="plain"),
        pytest.param(callee("wrap(self.g)"), "x = self.g(a)", "x = wrap(self.g)(a)", id="wrapped"),
        pytest.param(
            callee("h", within="x ="),
            "y = self.g(a)\n    x = self.g(b)",
            "y = self.g(a)\n    x = h(b)",
            id="one of two",
        ),
        pytest.param(
            callee("h", within="if  a"),
            "x = self.g(1)\n    if a:\n        x = self.g(a)",
            "x = self.g(1)\n    if a:\n        x = h(a)",
            id="within a block",
        ),
        pytest.param(callee("h"), "x = self.g(\n        a, b\n    ).c", "x = h(a, b).c", id="fits on one line now"),
        pytest.param(
            callee("h"), "x = self.g(\n        a,\n    )", "x = h(\n        a,\n    )", id="trailing comma holds lines"
        ),
        pytest.param(
            callee("h", call="torch.cat"),
            "import torch as th\n    x = th.cat(a)",
            "import torch as th\n    x = h(a)",
            id="alias",
        ),
    ],
)
def test_callee(edit: Call, old: str, new: str) -> None:
    check(edit, f"def f(self):\n    {old}\n", f"def f(self):\n    {new}\n")


A, B, C = "a" * 36, "b" * 30, "c" * 20


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        pytest.param(
            keyword("a"),
            f"    x = self.g(a={A}, b={B}).c\n",
            f"    x = self.g(a={A}, flag=self.flag, b={B}).c\n",
            id="fits",
        ),
        pytest.param(
            keyword("a"),
            f"    x = self.g({C}, a={A}, b={B})\n",
            f"    x = self.g(\n        {C}, a={A}, flag=self.flag, b={B}\n    )\n",
            id="items on a second line",
        ),
        pytest.param(
            keyword("a", "flag=self.flag_of_a_long_name"),
            f"    return self.g({C}, a={A}, b={B})\n",
            f"    return self.g(\n        {C},\n        a={A},\n        flag=self.flag_of_a_long_name,\n"
            f"        b={B},\n    )\n",
            id="one item per line",
        ),
        pytest.param(
            keyword("a", "flag=self.flag_of_a_long_name"),
            f"    x = self.g(\n        {C}, a={A}, b={B}\n    ).c\n",
            f"    x = self.g(\n        {C},\n        a={A},\n        flag=self.flag_of_a_long_name,\n"
            f"        b={B},\n    ).c\n",
            id="from a second line to one per line",
        ),
        pytest.param(
            keyword("a"),
            f"    x = h(y, self.g(a={A}, b={B}), {C[:-10]})\n",
            f"    x = h(\n        y, self.g(a={A}, flag=self.flag, b={B}), {C[:-10]}\n    )\n",
            id="the outer call is split first",
        ),
        pytest.param(
            keyword("a"),
            f"    x = h(y, z=self.g(a={A}, c={C}, b={B[:-15]}))\n",
            f"    x = h(\n        y, z=self.g(a={A}, flag=self.flag, c={C}, b={B[:-15]})\n    )\n",
            id="the outer call, as a keyword",
        ),
        pytest.param(
            keyword("a"),
            f"    x = h(\n        y,\n        z=self.g(a={A}, c={C}, b={B[:-5]}),\n    )\n",
            f"    x = h(\n        y,\n        z=self.g(\n            a={A}, flag=self.flag, c={C}, b={B[:-5]}\n"
            "        ),\n    )\n",
            id="an item of a call with one item per line",
        ),
        pytest.param(
            callee("self.a_longer_name_of_a_callee"),
            f"    if self.g({A}, {B}, c=1234567890):\n        pass\n",
            f"    if self.a_longer_name_of_a_callee(\n        {A}, {B}, c=1234567890\n    ):\n        pass\n",
            id="a longer callee in a condition",
        ),
    ],
)
def test_wrapping(edit: Call, before: str, after: str) -> None:
    check(edit, f"def f(self):\n{before}", f"def f(self):\n{after}")


def test_a_long_signature_is_wrapped() -> None:
    check(
        param("a"),
        f"def f(self, a, {A}=1, {B}=2) -> tuple[int, int]:\n    pass\n",
        f"def f(\n    self, a, flag: bool = False, {A}=1, {B}=2\n) -> tuple[int, int]:\n    pass\n",
    )


SOURCE = """\
def f(self, alpha, flag=1):
    x = self.g(first=1, flag=2)
    y = [self.h(1), self.h(2)]
    def inner():
        return self.k(1)
    return self.other.gg(x)
"""


@pytest.mark.parametrize(
    ("edit", "sought", "nearest"),
    [
        pytest.param(param("a"), "parameter `flag: bool = False` as this edit", [1], id="parameter with other code"),
        pytest.param(param("alpa", "new=1"), "parameter alpa of f", [1], id="no such parameter"),
        pytest.param(keyword("first"), "keyword `flag=self.flag` as this edit", [2], id="keyword with other value"),
        pytest.param(keyword("second", "new=1"), "keyword second of the call of self.g", [2], id="no such keyword"),
        pytest.param(keyword("a", "new=1", "self.h"), "self.h in f (2 matches)", [3], id="called twice"),
        pytest.param(keyword("a", "new=1", "self.k"), "self.k in f", [5], id="called in a nested function"),
        pytest.param(callee("new", call="gg"), "call of gg in f", [6], id="called on something else"),
        pytest.param(callee("new", within="z ="), "within `z =`", [2], id="no such statement"),
    ],
)
def test_drift(edit: Call, sought: str, nearest: list[int]) -> None:
    check_drift(edit, SOURCE, sought, nearest)


def test_a_result_that_does_not_compile_is_refused() -> None:
    source = b"def f(a, b):\n    pass\n"
    with pytest.raises(SkillgenError) as caught:
        apply_edits(source, [param("a")], path=PATH)
    assert caught.value.code == "invalid-result"
    assert PATH in caught.value.message


def replaced(code: str, instead: str) -> PassKeyword:
    return PassKeyword(path=PATH, function="f", call="self.g", code=code, after="a", instead=instead)


def test_a_keyword_of_one_of_two_calls() -> None:
    edit = PassKeyword(path=PATH, function="f", call="g", code="c=1", after="a", within="return g( a=2")
    before = (
        "def f(x):\n    if x:\n        return g(\n            a=1,\n        )\n    return g(\n        a=2,\n    )\n"
    )
    check(edit, before, before.replace("a=2,\n", "a=2,\n        c=1,\n"))


def test_a_keyword_gets_another_value_in_its_place() -> None:
    source = "def f(self):\n    self.g(\n        a=1,\n        b=None,\n        c=3,\n    )\n"
    check(replaced("b=groups", "b=None"), source, source.replace("b=None", "b=groups"))
    short = "def f(self):\n    self.g(a=1)\n"
    check(replaced("b=groups", "b=None"), short, short.replace("a=1", "a=1, b=groups"))


def test_a_keyword_of_a_third_value_is_drift() -> None:
    source = "def f(self):\n    self.g(a=1, b=2)\n"
    check_drift(replaced("b=groups", "b=None"), source, "keyword `b=groups`", [2])
