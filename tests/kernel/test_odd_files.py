"""Pipes and the like in a target are left out, or refused by name where they are needed: no command waits for them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillgen.kernel.checks import line_length
from skillgen.kernel.source import Source
from skillgen.kernel.target import discover
from tests.ledger.trees import refused

INFO = "MAJOR = 0\nMINOR = 6\nPATCH = 2\n"


def _hung(*_: object) -> None:
    raise AssertionError("a read that waits")


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """A read of a pipe would wait for ever."""
    signal.signal(signal.SIGALRM, _hung)
    signal.alarm(5)
    yield
    signal.alarm(0)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with a model."""
    folder = tmp_path / "nemo_automodel"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "models/model.py").write_text("class Model:\n    pass\n")
    return folder


def test_a_pipe_is_no_source(package: Path) -> None:
    os.mkfifo(package / "models/pipe.py")
    (package / "models/folder.py").mkdir()
    source = Source(discover(package.parent))
    assert list(source.files("models")) == ["models/model.py"]
    assert not source.has("models/pipe.py")
    for name in ("pipe", "folder"):
        with refused("in-the-way", 3) as caught:
            source.module(f"models/{name}.py")
        assert caught.value.where == f"nemo_automodel/models/{name}.py"


@pytest.mark.parametrize("name", ["nemo_automodel/package_info.py", "pyproject.toml", ".git", ".git/HEAD"])
def test_a_pipe_says_no_version(package: Path, name: str) -> None:
    path = package.parent / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    target = discover(package.parent)
    assert (target.version, target.kind) == (None, "tree")


def test_a_package_without_a_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "nemo_automodel").mkdir()
    os.mkfifo(tmp_path / "nemo_automodel/__init__.py")
    with refused("not-a-target", 2):
        discover(tmp_path)


def test_settings_of_ruff_that_are_no_file_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ruff.toml")
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 88\n")
    assert line_length(tmp_path) == 88
