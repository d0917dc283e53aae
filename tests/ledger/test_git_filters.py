"""A git checkout's own filters: none runs, and a refusal says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillgen.kernel.target import Target
from tests.ledger.trees import apply, checkout, git, refused, write


@pytest.mark.parametrize("name", ["Evil.One", ""])
@pytest.mark.parametrize("where", ["--local", "--worktree", "include"])
@pytest.mark.parametrize("key", ["clean", "process"])
def test_git_runs_no_filter_of_the_checkout(tmp_path: Path, where: str, key: str, name: str) -> None:
    target = filtered(tmp_path, name, key, f"touch {tmp_path}/trap; cat", where)
    os.utime(target.package / "models/alpha.py", (0, 0))
    apply(target, "alpha")
    assert not (tmp_path / "trap").exists()


def filtered(tmp_path: Path, name: str, key: str, command: str, where: str = "--local") -> Target:
    """A checkout that has its Python files go through a filter."""
    target = checkout(tmp_path / "t")
    git(target.root, "config", "extensions.worktreeConfig", "true")
    git(target.root, "config", "include.path", str(tmp_path / "more"))
    config = ["--file", str(tmp_path / "more")] if where == "include" else [where]
    git(target.root, "config", *config, f"filter.{name}.{key}", command)
    git(target.root, "config", *config, f"filter.{name}.required", "true")
    write(target.root / ".git/info/attributes", f"*.py filter={name}\n")
    return target


def test_a_refusal_names_the_filters_that_were_not_run(tmp_path: Path) -> None:
    target = filtered(tmp_path, "strip", "clean", "sed /mine/d")
    apply(target, "beta")
    with (target.package / "models/alpha.py").open("a") as file:
        file.write("# mine\n")
    with refused("dirty", 3, target.root) as caught:
        apply(target, "alpha")
    assert caught.value.hint.endswith("the checkout's own git filters were not run: strip")


def test_a_filter_that_cannot_be_switched_off(tmp_path: Path) -> None:
    target = filtered(tmp_path, "a=b", "clean", f"touch {tmp_path}/trap; cat")
    os.utime(target.package / "models/alpha.py", (0, 0))
    with refused("git", 3, target.root):
        apply(target, "alpha")
    assert not (tmp_path / "trap").exists()
    assert apply(target, "alpha", allow_dirty=True)
