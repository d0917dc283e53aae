"""Replace an expression, words of a docstring, a run of statements; enter one more context."""

from __future__ import annotations

import pytest

from skillgen.kernel.model import AddContext, ReplaceExpression, ReplaceStatement, ReplaceWords
from tests.edits.rewriting import PATH, check, check_drift, check_noop

CONFIG = '''\
import contextlib


class Config:
    """The policy.

    Args:
        dims: Dimensions of the mesh. Only
            one of them is supported.
    """

    dims: tuple[str] = ("cp",)

    def check(self):
        if self.dims != ("cp",):
            raise ValueError(f"{self} takes only cp")


@mark("dims", [["cp", "tp"], []])
def run(self, step):
    with contextlib.suppress(OSError), step.enter():
        rows = self.encode(1)
        rows = rows * 2
        rows = self.norm(rows)
        return rows
'''


def expression(old: str, new: str, scope: str = "Config") -> ReplaceExpression:
    return ReplaceExpression(path=PATH, scope=scope, old=old, new=new)


def words(old: str, new: str) -> ReplaceWords:
    return ReplaceWords(path=PATH, scope="Config", old=old, new=new)


def context(call: str, code: str) -> AddContext:
    return AddContext(path=PATH, function="run", call=call, code=code)


RUN = ReplaceStatement(
    path=PATH,
    function="run",
    anchor="rows = self.encode(1)\nrows = rows * 2\nrows = self.norm(rows)",
    code="rows = self.project(1)",
)


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        pytest.param(
            expression("tuple[str]", "tuple[str, ...]"), "tuple[str] =", "tuple[str, ...] =", id="annotation"
        ),
        pytest.param(
            expression('self.dims != ("cp",)', 'self.dims not in (("cp",), ("cp", "tp"))'),
            'self.dims != ("cp",)',
            'self.dims not in (("cp",), ("cp", "tp"))',
            id="condition in a method of the class",
        ),
        pytest.param(expression("[[ 'cp','tp' ], []]", "[[]]", "run"), '[["cp", "tp"], []]', "[[]]", id="decorator"),
        pytest.param(
            expression("step.enter()", "guard(step.enter())", "run"),
            "step.enter()",
            "guard(step.enter())",
            id="the new one holds the old one",
        ),
        pytest.param(
            words("Only one of them", "One of them,\nor both,"),
            "Only\n            one of them",
            "One of them,\n            or both,",
            id="words over two lines",
        ),
        pytest.param(
            context("step.enter", "self.publish()"),
            ", step.enter",
            ", self.publish(), step.enter",
            id="second context",
        ),
        pytest.param(
            context("contextlib.suppress", "self.publish()"),
            "with contextlib",
            "with self.publish(), contextlib",
            id="first context",
        ),
    ],
)
def test_edit(edit: ReplaceExpression | ReplaceWords | AddContext, old: str, new: str) -> None:
    assert CONFIG.count(old) == 1
    check(edit, CONFIG, CONFIG.replace(old, new))


def test_a_run_of_statements_becomes_one() -> None:
    first = CONFIG.index("        rows = self.encode")
    last = CONFIG.index("        return rows")
    check(RUN, CONFIG, CONFIG[:first] + "        rows = self.project(1)\n" + CONFIG[last:])


def test_a_context_on_lines_of_its_own() -> None:
    before = "def run(a):\n    with (\n        a.one(),\n        a.two() as two,\n    ):\n        return two\n"
    check(context("a.two", "a.mid()"), before, before.replace("        a.two", "        a.mid(),\n        a.two"))


def test_noop() -> None:
    check_noop(words("Only two", "Dimensions of the mesh."), CONFIG)
    check_noop(expression("gone", "tuple[str]"), CONFIG)


@pytest.mark.parametrize(
    ("edit", "sought", "nearest"),
    [
        pytest.param(expression("tuple[strs]", "x"), "expression `tuple[strs]` in Config", [12], id="expression"),
        pytest.param(expression('"cp"', "x"), 'expression `"cp"` in Config (2 matches)', [12, 15], id="ambiguous"),
        pytest.param(expression("x", "y", "Confi"), "definition Confi", [4, 14], id="definition"),
        pytest.param(words("Just one", "x"), "words `Just one` in the docstring of Config", [5], id="words"),
        pytest.param(context("step.leave", "x"), "with statement that enters step.leave in run", [21], id="context"),
    ],
)
def test_drift(edit: ReplaceExpression | ReplaceWords | AddContext, sought: str, nearest: list[int]) -> None:
    check_drift(edit, CONFIG, sought, nearest)


def test_a_run_that_is_interrupted_is_drift() -> None:
    moved = CONFIG.replace("rows = rows * 2", "rows = rows * 2\n        log(rows)")
    check_drift(RUN, moved, "statement `rows = self.encode(1)", [25, 22])


def test_statements_are_not_replaced_by_some_of_them() -> None:
    edit = ReplaceStatement(path=PATH, function="run", anchor=RUN.anchor, code="rows = rows * 2")
    with pytest.raises(ValueError, match="must not be some of them"):
        check_noop(edit, CONFIG)
