"""What holds for every kind of edit: errors, order, speed, and the bytes outside of the splices."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillgen.edits import apply_edits, plan_changes
from skillgen.kernel.errors import AnchorDrift, SkillgenError
from skillgen.kernel.model import (
    AddDefinition,
    AddField,
    AddFile,
    AddImport,
    AddMethod,
    AddParameter,
    Change,
    Edit,
    InsertAfter,
    InsertBefore,
    PassKeyword,
    ReplaceCallee,
    ReplaceStatement,
)
from tests.edits.rewriting import PATH, check

HEAD = '''\
"""A toy."""

from dataclasses import dataclass

import torch

from megatron.bridge.utils import tools


@dataclass
class Provider:
    """Options."""

    depth: int = 2

    def provide(self):
        """A model."""
        return Model(depth=self.depth)


'''
MODEL = '''\
class Model:
    """A model."""

    def __init__(self, depth: int):
        self.depth = depth

    def forward(self, pixels, sizes):
        rows = self.tower(pixels.to(torch.float32), sizes=sizes, return_dict=True).rows
        return tools.join(rows)
'''
EDITS: list[Edit] = [
    AddField(path=PATH, cls="Provider", code="# Shard it.\nshard: bool = False"),
    PassKeyword(path=PATH, function="Provider.provide", call="Model", code="shard=self.shard", after="depth"),
    AddImport(path=PATH, module="megatron.bridge.models.common", names=("helper", "Shard")),
    AddParameter(path=PATH, function="Model.__init__", code="shard: bool = False", after="depth"),
    InsertAfter(path=PATH, function="Model.__init__", anchor="self.depth = depth", code="self.shard = shard"),
    InsertBefore(
        path=PATH, function="Model.forward", anchor="call:self.tower", code="tower = Shard(self.tower, helper())"
    ),
    ReplaceCallee(path=PATH, function="Model.forward", call="self.tower", callee="tower"),
    ReplaceStatement(
        path=PATH,
        function="Model.forward",
        anchor="return tools.join(rows)",
        code="if self.shard:\n    rows = self.pad(rows)\nreturn tools.join(rows)",
    ),
    AddMethod(path=PATH, cls="Model", code='def pad(self, rows):\n    """Pad."""\n    return rows', after="forward"),
    AddDefinition(path=PATH, before="Model", code='def even(n: int) -> int:\n    """Even."""\n    return n + n % 2'),
]
PATCHED = '''\
"""A toy."""

from dataclasses import dataclass

import torch

from megatron.bridge.models.common import Shard, helper
from megatron.bridge.utils import tools


@dataclass
class Provider:
    """Options."""

    depth: int = 2

    # Shard it.
    shard: bool = False

    def provide(self):
        """A model."""
        return Model(depth=self.depth, shard=self.shard)


def even(n: int) -> int:
    """Even."""
    return n + n % 2


class Model:
    """A model."""

    def __init__(self, depth: int, shard: bool = False):
        self.depth = depth
        self.shard = shard

    def forward(self, pixels, sizes):
        tower = Shard(self.tower, helper())
        rows = tower(pixels.to(torch.float32), sizes=sizes, return_dict=True).rows
        if self.shard:
            rows = self.pad(rows)
        return tools.join(rows)

    def pad(self, rows):
        """Pad."""
        return rows
'''
RUFF = ["--isolated", "--config", 'lint.isort.known-first-party=["megatron.bridge"]', "--config", "line-length=119"]


def test_a_whole_patch() -> None:
    check(EDITS, HEAD + MODEL, PATCHED)


def test_the_order_of_independent_edits_is_free() -> None:
    assert apply_edits((HEAD + MODEL).encode(), EDITS[::-1], path=PATH).decode() == PATCHED


def test_ruff_is_content_with_the_result() -> None:
    result = apply_edits((HEAD + MODEL).encode(), EDITS, path=PATH)
    isort = ["--config", "lint.isort.lines-after-imports=2", "--select=E,F,I"]
    for command in (["check", *RUFF, *isort], ["format", "--check", *RUFF]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "-"], input=result, capture_output=True
        )
        assert done.returncode == 0, done.stdout.decode()


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(SkillgenError) as caught:
        apply_edits(b"x = 1\n\ndef f(:\n", EDITS, path=PATH)
    assert (caught.value.code, caught.value.exit_code, caught.value.where) == ("syntax-error", 3, f"{PATH}:3")


def test_bytes_that_are_no_text_are_a_syntax_error() -> None:
    with pytest.raises(SkillgenError) as caught:
        apply_edits(b"x = '\xe9'\n", EDITS, path=PATH)
    assert (caught.value.code, caught.value.where) == ("syntax-error", f"{PATH}:1")


def test_another_encoding_is_kept() -> None:
    source = "# -*- coding: latin-1 -*-\ndef f():\n    x = 'é'\n".encode("latin-1")
    edit = InsertAfter(path=PATH, function="f", anchor="x = 'é'", code="y = 'ü'")
    assert apply_edits(source, [edit], path=PATH) == source + "    y = 'ü'\n".encode("latin-1")


def test_lone_carriage_returns_are_refused() -> None:
    with pytest.raises(SkillgenError, match="carriage returns"):
        apply_edits(b"def f():\r    x = 1\r", EDITS, path=PATH)


def test_a_drift_says_what_the_anchors_were_verified_against() -> None:
    with pytest.raises(AnchorDrift, match=r"class Provider; last verified against megatron-bridge 0.6.2"):
        apply_edits(b"x = 1\n", EDITS[:1], path=PATH, verified="megatron-bridge 0.6.2")


@pytest.mark.parametrize("code", ["nonlocal x", "break"])
def test_a_result_that_does_not_compile_is_refused(code: str) -> None:
    edit = InsertBefore(path=PATH, function="f", anchor="return 1", code=code)
    with pytest.raises(SkillgenError) as caught:
        apply_edits(b"def f():\n    return 1\n", [edit], path=PATH)
    assert (caught.value.code, caught.value.exit_code) == ("invalid-result", 3)


def test_an_edit_that_does_not_find_its_own_result_is_refused() -> None:
    edits = [
        InsertBefore(path=PATH, function="f", anchor="x = 1", code="y = 1"),
        ReplaceStatement(path=PATH, function="f", anchor="y = 1", code="z = 1"),
    ]
    with pytest.raises(SkillgenError) as caught:
        apply_edits(b"def f():\n    x = 1\n", edits, path=PATH)
    assert caught.value.code == "unstable-edit"


def test_syntax_newer_than_this_python_is_no_error() -> None:
    source = b"type X = int\n\n\ndef f[T](a: T):\n    return a\n"
    edit = AddParameter(path=PATH, function="f", code="b: int = 1", after="a")
    assert apply_edits(source, [edit], path=PATH) == source.replace(b"a: T", b"a: T, b: int = 1")


def test_a_file_of_a_thousand_lines_is_quick() -> None:
    filler = "".join(MODEL.replace("Model", f"Model{number}") + "\n\n" for number in range(95))
    source = (HEAD + filler + MODEL).encode()
    assert source.count(b"\n") > 1000
    times = []
    for _ in range(3):
        start = time.process_time()
        apply_edits(source, EDITS, path=PATH)
        times.append(time.process_time() - start)
    assert min(times) < 1.0  # 0.2 s on an idle machine


def test_plan_changes() -> None:
    files = {PATH: (HEAD + MODEL).encode(), "same.py": b"x = 1\r\n"}
    new, same = AddFile(path="new.py", content="y = 1\n"), AddFile(path="same.py", content="x = 1\n")
    changes = plan_changes([new, *EDITS, same], files.get)
    assert changes == (Change("new.py", None, b"y = 1\n"), Change(PATH, files[PATH], PATCHED.encode()))
    files.update((change.path, change.after or b"") for change in changes)
    assert plan_changes([new, *EDITS, same], files.get) == ()


@pytest.mark.parametrize(
    ("edit", "code"),
    [(AddFile(path="same.py", content="x = 2\n"), "file-exists"), (EDITS[0], "file-missing")],
)
def test_plan_changes_refuses(edit: Edit, code: str) -> None:
    with pytest.raises(SkillgenError) as caught:
        plan_changes([edit], {"same.py": b"x = 1\n"}.get)
    assert caught.value.code == code


noise = st.lists(
    st.sampled_from(
        ["", "# c", "    # deep", "x = 'é'", "y = '''\n # not a comment\n  '''", "z = f(\n1\n)  # t", "\t"]
    ),
    max_size=4,
)
INSERTS = [edit for edit in EDITS if not isinstance(edit, (ReplaceCallee, ReplaceStatement, AddImport))]


@settings(max_examples=40, deadline=None)
@given(
    above=noise, between=noise, below=noise, newline=st.sampled_from(["\n", "\r\n"]), bom=st.booleans(),
    ended=st.booleans(), edit=st.sampled_from(INSERTS),
)  # fmt: skip
def test_bytes_outside_of_an_insertion_are_kept(
    above: list[str], between: list[str], below: list[str], newline: str, bom: bool, ended: bool, edit: Edit
) -> None:
    text = "\n".join([*above, HEAD, *between, MODEL, *below]) + "\n" * ended
    source = b"\xef\xbb\xbf" * bom + text.replace("\n", newline).encode()
    result = apply_edits(source, [edit], path=PATH)
    prefix = next((i for i, (a, b) in enumerate(zip(source, result, strict=False)) if a != b), len(source))
    rest = len(source) - prefix
    assert len(result) > len(source)
    assert result.endswith(source[len(source) - rest :]) if rest else True
    assert apply_edits(result, [edit], path=PATH) == result
    assert result.count(b"\r\n") == (result.count(b"\n") if newline == "\r\n" else 0)
