"""Add dataclass fields, methods and top-level definitions."""

from __future__ import annotations

import pytest

from skillgen.kernel.model import AddDefinition, AddField, AddMethod
from tests.edits.rewriting import PATH, check, check_drift, check_noop

FLAG = "flag: bool = False"


def field(code: str = FLAG, cls: str = "P", after: str | None = None) -> AddField:
    return AddField(path=PATH, cls=cls, code=code, after=after)


def method(code: str, after: str = "b", cls: str = "P") -> AddMethod:
    return AddMethod(path=PATH, cls=cls, code=code, after=after)


def definition(code: str, before: str = "P") -> AddDefinition:
    return AddDefinition(path=PATH, before=before, code=code)


def dataclass(body: str) -> str:
    return f"from dataclasses import dataclass\n\n\n@dataclass\nclass P(Base):\n{body}"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("    flag: bool = False\n    b: int = 1\n", id="there, elsewhere"),
        pytest.param("    # other words\n    flag: bool = (False)  # comment\n", id="there, other comments"),
    ],
)
def test_field_noop(body: str) -> None:
    check_noop(field("# Why.\n" + FLAG), dataclass(body))


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        pytest.param(field(), "    a: int\n", "    a: int\n    flag: bool = False\n", id="last"),
        pytest.param(
            field(),
            "    a: int = 1  # one\n\n    def f(self):\n        pass\n",
            "    a: int = 1  # one\n    flag: bool = False\n\n    def f(self):\n        pass\n",
            id="above a method",
        ),
        pytest.param(
            field("# Why.\n# More.\nflag: bool = False"),
            "    a: int = 1\n\n    def f(self):\n        pass\n",
            "    a: int = 1\n\n    # Why.\n    # More.\n    flag: bool = False\n\n    def f(self):\n        pass\n",
            id="a comment begins a new group",
        ),
        pytest.param(
            field("# Why.\nflag: bool = False", after="a"),
            "    a: int = 1\n    b: int = 2\n",
            "    a: int = 1\n\n    # Why.\n    flag: bool = False\n\n    b: int = 2\n",
            id="a new group between",
        ),
        pytest.param(
            field(after="a"),
            "    a: int = f(\n        1,\n    )\n    b: int = 2\n",
            "    a: int = f(\n        1,\n    )\n    flag: bool = False\n    b: int = 2\n",
            id="after a field of several lines",
        ),
        pytest.param(
            field(f'{FLAG}\n"""New."""'),
            '    a: int = 1\n    """Old."""\n\n    b = 2\n',
            '    a: int = 1\n    """Old."""\n    flag: bool = False\n    """New."""\n\n    b = 2\n',
            id="behind the text of a field",
        ),
        pytest.param(
            field(),
            '    """Doc."""\n\n    def f(self):\n        pass\n',
            '    """Doc."""\n\n    flag: bool = False\n\n    def f(self):\n        pass\n',
            id="first field, below the docstring",
        ),
        pytest.param(field(), "    pass\n", "    flag: bool = False\n    pass\n", id="first field of an empty class"),
        pytest.param(
            field(f"{FLAG}\nother: int = 1"),
            "    a: int\n",
            "    a: int\n    flag: bool = False\n    other: int = 1\n",
            id="two fields",
        ),
    ],
)
def test_field(edit: AddField, before: str, after: str) -> None:
    check(edit, dataclass(before), dataclass(after))


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("import dataclasses\n\n@dataclasses.dataclass(kw_only=True)\n", id="module"),
        pytest.param("import dataclasses as dc\n\n@other\n@dc.dataclass\n", id="module alias"),
        pytest.param("from dataclasses import dataclass as d\n\n@d(frozen=True)\n", id="name alias"),
        pytest.param("try:\n    from dataclasses import dataclass\nfinally:\n    pass\n\n@dataclass\n", id="in a try"),
    ],
)
def test_field_of_a_dataclass_under_any_name(head: str) -> None:
    check(field(), f"{head}class P:\n    a: int\n", f"{head}class P:\n    a: int\n    {FLAG}\n")


@pytest.mark.parametrize(
    ("edit", "source", "sought", "nearest"),
    [
        pytest.param(
            field(), "from attrs import dataclass\n@dataclass\nclass P:\n    a: int\n", "dataclasses.dataclass", [3],
            id="dataclass of another module",
        ),
        pytest.param(field(), "class P:\n    a: int\n", "not decorated", [1], id="no dataclass"),
        pytest.param(field(cls="Q"), dataclass("    a: int\n"), "class Q", [], id="no such class"),
        pytest.param(field(cls="Pq"), dataclass("    a: int\n"), "class Pq", [5], id="misspelled class"),
        pytest.param(field(after="alph"), dataclass("    alpha: int\n"), "field alph in P", [6], id="no such field"),
        pytest.param(field(), dataclass("    flag: bool = True\n"), "as this edit writes it", [6], id="other default"),
        pytest.param(field(f"{FLAG}\nb: int = 1"), dataclass(f"    {FLAG}\n"), "writes it", [6], id="one of two"),
    ],
)  # fmt: skip
def test_field_drift(edit: AddField, source: str, sought: str, nearest: list[int]) -> None:
    check_drift(edit, source, sought, nearest)


NEW = '''
def new(self):
    """First line.

    More.
    """
    return 1
'''
NEW_IN_CLASS = '    def new(self):\n        """First line.\n\n        More.\n        """\n        return 1\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "class P:\n    def b(self):\n        pass\n\n    @property\n    def c(self):\n        pass\n",
            f"class P:\n    def b(self):\n        pass\n\n{NEW_IN_CLASS}\n"
            "    @property\n    def c(self):\n        pass\n",
            id="between",
        ),
        pytest.param(
            "class P:\n    @staticmethod\n    def b():\n        pass\n        # end\n\n\nx = 1\n",
            f"class P:\n    @staticmethod\n    def b():\n        pass\n        # end\n\n{NEW_IN_CLASS}\n\nx = 1\n",
            id="last of its class",
        ),
        pytest.param(
            "class P:\n    async def b(self):\n        pass\n",
            f"class P:\n    async def b(self):\n        pass\n\n{NEW_IN_CLASS}",
            id="last of the file",
        ),
    ],
)
def test_method(before: str, after: str) -> None:
    check(method(NEW), before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "import a\n\n\n# About P.\n@a.b\nclass P:\n    pass\n",
            "import a\n\n\ndef n():\n    pass\n\n\n# About P.\n@a.b\nclass P:\n    pass\n",
            id="above decorator and comment",
        ),
        pytest.param(
            '"""Doc."""\n\n\ndef P():\n    pass\n',
            '"""Doc."""\n\n\ndef n():\n    pass\n\n\ndef P():\n    pass\n',
            id="before a function",
        ),
        pytest.param("class P:\n    pass\n", "def n():\n    pass\n\n\nclass P:\n    pass\n", id="first of the file"),
    ],
)
def test_definition(before: str, after: str) -> None:
    check(definition("def n():\n    pass\n"), before, after)


def test_noop_of_a_method_and_a_definition() -> None:
    other = NEW_IN_CLASS.replace('"""First line.\n\n        More.\n        """', "'First line. More.'")
    check_noop(method(NEW), f"class P:\n{NEW_IN_CLASS}\n    def b(self):\n        pass\n")
    check_noop(method(NEW, after="gone"), f"class P:\n{other}")
    check_noop(definition("class N:\n    a = 'x'"), 'class P:\n    pass\n\n\nclass N:\n    a = "x"  # why\n')


@pytest.mark.parametrize(
    ("edit", "sought", "nearest"),
    [
        pytest.param(method(NEW, after="bb"), "function P.bb", [2], id="no such method"),
        pytest.param(method("def b(self):\n    return 2"), "definition of b in P", [2], id="method with other code"),
        pytest.param(definition("def n():\n    pass", before="Pp"), "definition Pp", [1], id="no such definition"),
        pytest.param(definition("def n():\n    pass", before="q"), "q (defined 2 times)", [5, 8], id="defined twice"),
        pytest.param(definition("class P:\n    pass"), "definition of P", [1], id="definition with other code"),
    ],
)
def test_drift(edit: AddMethod | AddDefinition, sought: str, nearest: list[int]) -> None:
    check_drift(
        edit,
        "class P:\n    def b(self):\n        return 1\n\ndef q():\n    pass\n\ndef q():\n    pass\n",
        sought,
        nearest,
    )
