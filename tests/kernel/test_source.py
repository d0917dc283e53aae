"""The lazy index: names resolved through imports, walks as slices, files parsed once."""

from __future__ import annotations

import ast

import pytest

from skillgen.kernel.source import Source, SourceSyntaxError, walk


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
    return Source(target.root, target.package)


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


def test_walk_is_what_ast_walks(source: Source) -> None:
    for node in source.module("models/a.py").nodes:
        expected = [child for child in ast.walk(node) if not isinstance(child, ast.expr_context)]
        assert sorted(map(id, walk(node))) == sorted(map(id, expected))


def test_parses_a_file_once(source: Source) -> None:
    assert source.module("models/a.py") is source.module("models/a.py")


def test_warnings_of_a_target_stay_quiet(tree, recwarn) -> None:
    target = tree({"models/old.py": "x = 1 is 1\n"})
    Source(target.root, target.package).module("models/old.py")
    assert not list(recwarn)


def test_syntax_error_names_the_line(tree) -> None:
    target = tree({"models/bad.py": "x = 1\ny = (\n"})
    with pytest.raises(SourceSyntaxError) as caught:
        Source(target.root, target.package).module("models/bad.py")
    assert caught.value.where == "megatron/bridge/models/bad.py:2"
