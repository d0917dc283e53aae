"""Beside another technique on one tree: any order in, any order out, and the bytes are those of either alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.trees import git, snapshot
from tests.vision_tp_dp.targets import BRIDGE, TECHNIQUE, checkout, release, run

SHARDING, HIERARCHICAL = "vision-dp-over-cp", "hierarchical-cp"
OTHERS = (SHARDING, HIERARCHICAL)
RUNTIME = "models/common/vision_sharding"
Files = dict[str, Any]


def files(root: Path) -> Files:
    """Everything but the receipts, which tell of times."""
    return {name: content for name, content in snapshot(root).items() if not name.startswith(".skillgen")}


def unordered(found: Files) -> Files:
    """The wheel's RECORD lists added files in the order in which they came."""
    return {
        name: b"".join(sorted(text.splitlines(True))) if name.endswith("/RECORD") else text
        for name, text in found.items()
    }


@pytest.mark.evals
@pytest.mark.parametrize("other", OTHERS)
def test_any_order(other: str, tmp_path: Path) -> None:
    root = release("bridge-0.6.2", tmp_path)
    before, alone, both = files(root), {}, []
    for technique in (TECHNIQUE, other):
        assert run("apply", root, technique=technique) == 0
        alone[technique] = files(root)
        assert run("revert", root, technique=technique) == 0
        assert files(root) == before
    for order in ((TECHNIQUE, other), (other, TECHNIQUE)):
        for technique in order:
            assert run("apply", root, technique=technique) == 0
        both.append(files(root))
        first, last = order
        assert run("revert", root, technique=first) == 0
        assert unordered(files(root)) == unordered(alone[last])
        assert run("apply", root, technique=first) == 0
        assert run("revert", root, technique=last) == 0
        assert unordered(files(root)) == unordered(alone[first])
        assert run("revert", root, technique=first) == 0
        assert files(root) == before
    assert unordered(both[0]) == unordered(both[1]) != unordered(before)


def test_the_runtime_is_shared_and_goes_with_its_last_user(tmp_path: Path) -> None:
    root = release("bridge-0.6.2", tmp_path)
    runtime = root / BRIDGE / RUNTIME
    assert run("apply", root, technique=SHARDING) == 0
    base = {path.name: path.read_bytes() for path in runtime.glob("*.py")}
    assert run("apply", root) == 0
    assert base.items() <= {path.name: path.read_bytes() for path in runtime.glob("*.py")}.items()
    assert (runtime / "tp_dp" / "encode.py").is_file()
    assert run("revert", root, technique=SHARDING) == 0
    left = {path.name for path in runtime.glob("*.py")}
    assert {"api.py", "gather.py", "plan.py"} <= left & base.keys()
    assert "image_batch.py" not in left  # the form of a family that is no user any more
    assert run("apply", root, technique=SHARDING) == 0
    assert run("revert", root) == 0
    assert {path.name: path.read_bytes() for path in runtime.glob("*.py")} == base
    assert not (runtime / "tp_dp").exists()
    assert run("revert", root, technique=SHARDING) == 0
    assert not runtime.exists()


def test_all_on_a_checkout(tmp_path: Path) -> None:
    """The tests of the runtime are the same file for both that bring it; the target's ruff is asked each time."""
    root = checkout("067f987df", tmp_path / "checkout")
    order = (SHARDING, TECHNIQUE, HIERARCHICAL)
    for technique in order:
        assert run("apply", root, technique=technique) == 0
    for technique in order:
        assert run("revert", root, technique=technique) == 0
    assert git(root, "status", "--short", "--untracked-files=all") == ""
