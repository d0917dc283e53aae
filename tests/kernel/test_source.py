"""The lazy index: names resolved through imports, walks as slices, files parsed once."""

from __future__ import annotations

import ast

import pytest

from skillgen.kernel.source import Source, SourceSyntaxError, statements, walk


@pytest.fixture
def source(tree) -> Source:
    target = tree(
        {
            "models/a.py": "import torch.nn.functional as F\nfrom ..utils import helper as h\nfrom . import b\n"
            "class A(b.B):\n    def own(self): return F.relu(h(self))\n",
            "models/b.py": "class B:\n    def own(self): ...\n    def other(self): ...\n",
            "models/loop.py": "from .loop import Missing\nclass C(Missing): ...\n",
            "utils/__init__.py": "from megatron.bridge.utils.deep import helper\n",
            "utils/deep.py": "def helper(x): ...\n",
        }
    )
    return Source(target)


@pytest.mark.parametrize(
    ("expression", "origin"),
    [
        ("F.relu", "torch.nn.functional.relu"),
        ("h", "megatron.bridge.utils.helper"),
        ("b.B", "megatron.bridge.models.b.B"),
        ("A", "megatron.bridge.models.a.A"),
        ("self.x", "self.x"),
        ("f().x", None),
    ],
)
def test_origin(source: Source, expression: str, origin: str | None) -> None:
    node = ast.parse(expression, mode="eval").body
    assert source.module("models/a.py").origin(node) == origin


def test_finds_through_a_re_export(source: Source) -> None:
    found = source.find_function("megatron.bridge.utils.helper")
    assert found is not None and found[0].path == "utils/deep.py"


@pytest.mark.parametrize(
    "origin", ["torch.nn.Module", "megatron.bridge.models.loop.Missing", "megatron.bridgework.a.A", "A"]
)
def test_finds_nothing_elsewhere(source: Source, origin: str) -> None:
    assert source.find_class(origin) is None


def test_methods_are_own_before_inherited(source: Source) -> None:
    module = source.module("models/a.py")
    methods = source.methods(module, module.classes["A"])
    assert {name: method.cls.name for name, method in methods.items()} == {"own": "A", "other": "B"}


def _preorder(node: ast.AST) -> list[ast.AST]:
    inner = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]
    return [node, *(found for child in inner for found in _preorder(child))]


EVERYTHING = """
import a, b.c as d
@decorated(1)
class A(Base, metaclass=M):
    x: int = {**y, "k": [i for i in z if i]}
    async def f(self, p=lambda q: q, *r, s=None, **t) -> None:
        try:
            with open(p) as g: from e import h
        except (ValueError, OSError) as error:
            class Inner: ...
        else:
            global v
        finally:
            match p:
                case {"a": [1, *rest], **more} if rest: import j
                case _: pass
        for k in r:
            if k: return f"{k!r:>{s}}"
            elif not k: import l
            else: import m
        else: import n
        while (o := p): import u
"""


def test_walk_is_preorder_of_all_but_contexts(tree) -> None:
    module = Source(tree({"models/all.py": EVERYTHING})).module("models/all.py")
    everything = _preorder(module.tree)
    assert len(everything) > 90
    for node in everything:
        assert [id(found) for found in walk(node)] == [id(found) for found in _preorder(node)]


def test_statements_are_those_of_every_block_in_order(tree) -> None:
    module = Source(tree({"models/all.py": EVERYTHING})).module("models/all.py")
    kinds = (ast.stmt, ast.ExceptHandler, ast.match_case)
    assert module.statements == [node for node in _preorder(module.tree) if isinstance(node, kinds)]
    inner = _preorder(module.classes["A"])[1:]
    assert statements(module.classes["A"]) == [node for node in inner if isinstance(node, kinds)]
    assert {"a", "d", "h", "j", "l", "m", "n", "u"} == set(module.imports)
    assert list(module.classes) == ["A", "Inner"]


def test_an_expression_nested_too_deeply_is_a_syntax_error_or_none(tree) -> None:
    deep = Source(tree({"models/deep.py": f"x = {'-' * 3000}1\ny = {' + '.join('1' * 5000)}\n"}))
    try:
        assert len(walk(deep.module("models/deep.py").tree)) > 8000
    except SourceSyntaxError as error:
        assert error.code == "syntax-error"


def test_what_is_read_under_other_texts_leaves_the_rest_alone(source: Source) -> None:
    before = source.module("models/b.py")
    other = source.under({"models/a.py": b"class New: ...\n", "models/new.py": b"x = 1\n"})
    assert list(other.module("models/a.py").classes) == ["New"] and other.has("models/new.py")
    assert list(source.module("models/a.py").classes) == ["A"] and not source.has("models/new.py")
    assert other.module("models/b.py") is before


def test_files_are_listed_as_a_walk_lists_them(tree, tmp_path) -> None:
    names = [
        "z.py",
        "a/b.py",
        "a/a/c.py",
        "b/.hidden/x.py",
        "b/__pycache__/y.py",
        "b/data.txt",
        ".x/y.py",
        "c.py/d.py",
    ]
    target = tree({f"models/{name}": "" for name in names})
    (target.package / "models/link").symlink_to(target.package / "models/a")
    (target.package / "models/link.py").symlink_to(target.package / "models/z.py")
    wanted = ["z.py", "a/b.py", "a/a/c.py", "c.py/d.py"]
    assert list(Source(target).files("models")) == [f"models/{name}" for name in wanted]
    assert list(Source(target).files("nowhere")) == []


def test_parses_a_file_once(source: Source) -> None:
    assert source.module("models/a.py") is source.module("models/a.py")


def test_warnings_of_a_target_stay_quiet(tree, recwarn) -> None:
    target = tree({"models/old.py": "x = 1 is 1\n"})
    Source(target).module("models/old.py")
    assert not list(recwarn)


def test_syntax_error_names_the_line(tree) -> None:
    target = tree({"models/bad.py": "x = 1\ny = (\n"})
    with pytest.raises(SourceSyntaxError) as caught:
        Source(target).module("models/bad.py")
    assert caught.value.where == "megatron/bridge/models/bad.py:2"
