"""Add names from a module at their sorted place."""

from __future__ import annotations

import pytest

from skillgen.edits import apply_edits
from skillgen.edits.imports import member_key, natural
from skillgen.kernel.model import AddImport, RemoveImport
from tests.edits.rewriting import PATH, check, check_drift, check_noop

CODE = "\n\nx = 1\n"
DEF = "\n\ndef f():\n    return 1\n"
LONG = "megatron.bridge.models.common.vision_sharding"


def add(module: str, *names: str) -> AddImport:
    return AddImport(path=PATH, module=module, names=names)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("from megatron.bridge.a import f, g\n", id="there"),
        pytest.param("from megatron.bridge.a import (\n    a,\n    f,  # why\n    g,\n)\n", id="there, one per line"),
        pytest.param(
            "from megatron.bridge.a import f\nfrom megatron.bridge.a import g\n", id="there, in two statements"
        ),
        pytest.param("from ...a import f, g\n", id="there, relative"),
        pytest.param("import sys; from megatron.bridge.a import f, g\n", id="there, behind a semicolon"),
        pytest.param("x = 1\nfrom megatron.bridge.a import f, g\n", id="there, below other code"),
    ],
)
def test_noop(source: str) -> None:
    check_noop(add("megatron.bridge.a", "g", "f"), source)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "from megatron.bridge.a import B, c\n",
            "from megatron.bridge.a import A_B, B, c, f\n",
            id="constants, classes, functions",
        ),
        pytest.param(
            "from megatron.bridge.a import c  # noqa: F401\n",
            "from megatron.bridge.a import A_B, c, f  # noqa: F401\n",
            id="comment kept",
        ),
        pytest.param(
            "from megatron.bridge.a import (\n    Z,\n    e,  # why\n    # g\n    g,\n    h,\n)\n",
            "from megatron.bridge.a import (\n    A_B,\n    Z,\n    e,  # why\n    f,\n    # g\n    g,\n    h,\n)\n",
            id="one per line, comments between",
        ),
        pytest.param(
            "from megatron.bridge.a import (\n    Z,\n    e,\n)\n",
            "from megatron.bridge.a import (\n    A_B,\n    Z,\n    e,\n    f,\n)\n",
            id="one per line, first and last",
        ),
        pytest.param(
            "from megatron.bridge.a import (b, c)\n", "from megatron.bridge.a import A_B, b, c, f\n", id="parentheses"
        ),
        pytest.param(
            "from megatron.bridge.a import b, \\\n    c\n",
            "from megatron.bridge.a import A_B, b, c, f\n",
            id="backslash",
        ),
        pytest.param("from ...a import b\n", "from ...a import A_B, b, f\n", id="relative import of the same module"),
        pytest.param(
            "from megatron.bridge.a import f as g\n",
            "from megatron.bridge.a import A_B, f\nfrom megatron.bridge.a import f as g\n",
            id="an alias does not bind the name",
        ),
        pytest.param(
            "from megatron.bridge.a import *\n",
            "from megatron.bridge.a import *\nfrom megatron.bridge.a import A_B, f\n",
            id="a star is not a name",
        ),
        pytest.param(
            "if x:\n    from megatron.bridge.a import f\n",
            "from megatron.bridge.a import A_B, f\n\n\nif x:\n    from megatron.bridge.a import f\n",
            id="an import under a condition does not count",
        ),
    ],
)
def test_merge(before: str, after: str) -> None:
    check(add("megatron.bridge.a", "f", "A_B"), before + CODE, after + CODE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            '"""Doc."""\n\nimport torch\n' + CODE,
            '"""Doc."""\n\nimport torch\n\nfrom megatron.bridge.b import f\n' + CODE,
            id="new section at the end",
        ),
        pytest.param(
            "import torch\n\nfrom .x import y\n" + CODE,
            "import torch\n\nfrom megatron.bridge.b import f\n\nfrom .x import y\n" + CODE,
            id="new section before the relative imports",
        ),
        pytest.param(
            "from megatron.bridge.c import g\n" + CODE,
            "from megatron.bridge.b import f\nfrom megatron.bridge.c import g\n" + CODE,
            id="first of its section",
        ),
        pytest.param(
            "import torch\n\nimport megatron.bridge\nfrom megatron.bridge import x\n\n# stuck to c\n"
            "from megatron.bridge.c import g\n",
            "import torch\n\nimport megatron.bridge\nfrom megatron.bridge import x\nfrom megatron.bridge.b import f\n"
            "\n# stuck to c\nfrom megatron.bridge.c import g\n",
            id="between, above a comment",
        ),
        pytest.param(
            "import torch\n\n# stuck to c\nfrom megatron.bridge.c import g\n",
            "import torch\n\nfrom megatron.bridge.b import f\n\n# stuck to c\nfrom megatron.bridge.c import g\n",
            id="first of its section, above a comment",
        ),
        pytest.param(
            "from megatron.bridge.A import x  # last\n" + CODE,
            "from megatron.bridge.A import x  # last\nfrom megatron.bridge.b import f\n" + CODE,
            id="last of its section, behind a comment",
        ),
        pytest.param(
            "from megatron.core.x import y\n\nfrom tests.toys import toy\n" + CODE,
            "from megatron.core.x import y\n\nfrom megatron.bridge.b import f\nfrom tests.toys import toy\n" + CODE,
            id="megatron.core is third party, tests are first party",
        ),
        pytest.param(
            '# Copyright\n\n"""Doc."""\n\n\ndef g():\n    pass\n',
            '# Copyright\n\n"""Doc."""\n\nfrom megatron.bridge.b import f\n\n\ndef g():\n    pass\n',
            id="first import below the docstring",
        ),
        pytest.param(
            "# Copyright\n\nx = 1\n",
            "# Copyright\n\nfrom megatron.bridge.b import f\n\n\nx = 1\n",
            id="first import below the copyright",
        ),
        pytest.param(
            "import torch\n\n\nx = 1\nfrom megatron.bridge.c import g\n",
            "import torch\n\nfrom megatron.bridge.b import f\n\n\nx = 1\nfrom megatron.bridge.c import g\n",
            id="only the first run of imports counts",
        ),
        pytest.param(
            "import a\n\ntry:\n    import b\nexcept ImportError:\n    pass\n\nfrom megatron.bridge.c import g\n",
            "import a\n\ntry:\n    import b\nexcept ImportError:\n    pass\n\n"
            "from megatron.bridge.b import f\nfrom megatron.bridge.c import g\n",
            id="guarded imports part a run that goes on below",
        ),
    ],
)
def test_place(before: str, after: str) -> None:
    check(add("megatron.bridge.b", "f"), before, after)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        pytest.param("logging.config", 2, id="standard library"),
        pytest.param("numpy", 4, id="third party"),
        pytest.param("__future__", 1, id="future"),
        pytest.param("megatron.bridge.model2", 8, id="natural order: 2 before 10"),
    ],
)
def test_sections(module: str, line: int) -> None:
    source = (
        "from __future__ import annotations\n\nimport os\n\nimport torch\n\nfrom megatron.bridge.model10 import x\n"
    )
    name = "division" if module == "__future__" else "f"
    lines = source.splitlines(keepends=True)
    if module == "__future__":
        lines[0] = "from __future__ import annotations, division\n"
    elif module == "numpy":
        lines.insert(5, "from numpy import f\n")
    else:
        lines.insert(3 if module.startswith("log") else 6, f"from {module} import f\n")
    check(add(module, name), source, "".join(lines))


def test_an_empty_file() -> None:
    check(add("megatron.bridge.b", "f"), "", "from megatron.bridge.b import f\n", dresses=("plain", "bom"))


def test_a_line_that_gets_too_long_is_split() -> None:
    names = [f"number_{i}" for i in range(5)]
    before = f"from {LONG} import {', '.join(names)}  # noqa\n"
    after = f"from {LONG} import (  # noqa\n    Name,\n" + "".join(f"    {name},\n" for name in names) + ")\n"
    assert len(before) < 119
    check(add(LONG, "Name"), before + DEF, after + DEF)


def test_a_new_import_that_is_too_long_is_split() -> None:
    names = [f"name_number_{i}" for i in range(5)]
    after = f"import torch\n\nfrom {LONG} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"
    check(add(LONG, *names), "import torch\n" + DEF, after + DEF)


def test_in_megatron_lm_all_of_megatron_is_first_party() -> None:
    edit = AddImport(path="megatron/core/models/x.py", module="megatron.core.b", names=("f",))
    source = b"import torch\n\nfrom megatron.core.c import g\n"
    assert apply_edits(source, [edit], path=edit.path) == (
        b"import torch\n\nfrom megatron.core.b import f\nfrom megatron.core.c import g\n"
    )


def test_automodel_has_one_line_below_the_imports_but_above_definitions() -> None:
    edit = AddImport(path="nemo_automodel/x.py", module="nemo_automodel.b", names=("f",))
    for rest in (b"\nx = 1\n", b"\n\ndef g():\n    pass\n"):
        assert apply_edits(b"import torch\n" + rest, [edit], path=edit.path) == (
            b"import torch\n\nfrom nemo_automodel.b import f\n" + rest
        )


def test_names_between_comments_are_left_to_a_person() -> None:
    check_drift(
        add("megatron.bridge.a", "f"), "from megatron.bridge.a import (  # why\n    b, c)\n", "without comments", [1]
    )


def test_order() -> None:
    assert sorted(["zeta", "alpha", "Beta", "AB", "A", "aa2", "aa10"], key=member_key) == [
        "AB",
        "A",
        "Beta",
        "aa2",
        "aa10",
        "alpha",
        "zeta",
    ]
    assert natural("x_a") > natural("x1") > natural("x.y")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "import os\nfrom a import f\nfrom b import g\n", "import os\nfrom b import g\n", id="the statement"
        ),
        pytest.param("from a import e, f, g\n", "from a import e, g\n", id="one of three"),
        pytest.param(
            "from a import (\n    e,\n    f,\n)\n", "from a import e\n", id="one of two on lines of their own"
        ),
        pytest.param("from b import f\nfrom a import g\n", "from b import f\nfrom a import g\n", id="none there"),
        pytest.param("from a import f as g\n", "from a import f as g\n", id="under another name"),
    ],
)
def test_remove(before: str, after: str) -> None:
    check(RemoveImport(path=PATH, module="a", names=("f",)), before + DEF, after + DEF)


def test_a_removed_name_beside_comments_is_left_to_a_person() -> None:
    edit = RemoveImport(path=PATH, module="a", names=("f",))
    check_drift(edit, "from a import (  # why\n    f,\n    g)\n", "without comments", [1])
