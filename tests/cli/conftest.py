"""Miniature targets, and a way to run the command line on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from tests.cli.trees import Skillgen, git, write


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An unpacked wheel."""
    root = tmp_path / "tree"
    write(root / "megatron/bridge")
    return root


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git checkout with tests, and ruff rules of its own."""
    root = tmp_path / "checkout"
    write(root / "src/megatron/bridge")
    (root / "tests/unit_tests/models/ministral3").mkdir(parents=True)
    (root / "tests/unit_tests/models/ministral3/__init__.py").write_text("")
    (root / "pyproject.toml").write_text('[project]\nname = "megatron-bridge"\n')
    (root / "ruff.toml").write_text(
        'line-length = 119\ntarget-version = "py310"\n[lint]\nselect = ["F", "I", "E741", "D101", "D103"]\n'
        '[lint.isort]\nknown-first-party = ["megatron.bridge"]\nlines-after-imports = 2\n'
        '[lint.per-file-ignores]\n"tests/**" = ["D101", "D103"]\n'
    )
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    return root


@pytest.fixture
def skillgen(capsys: pytest.CaptureFixture[str]) -> Skillgen:
    """Run a command with --json; its exit code and its object, whose shape is checked."""

    def run(*arguments: object) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main([*map(str, arguments), "--json"])
        answer = json.loads(capsys.readouterr().out)
        assert list(answer) == ["command", "target", "ok", "exit_code", "rows", "error"]
        assert answer["exit_code"] == code and answer["ok"] == (code == 0) and answer["command"] == arguments[0]
        assert (answer["error"] is None) == (code == 0)
        if answer["error"]:
            assert list(answer["error"]) == ["code", "message", "where", "hint"] and answer["error"]["message"]
        return code, answer

    return run
