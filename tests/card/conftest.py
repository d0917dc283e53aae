"""A miniature pack whose parity is proven, and the command that works on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from tests.card.packs import Run, report, write


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where reports go."""
    (tmp_path / "reports").mkdir()
    return tmp_path / "reports"


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return write(tmp_path / "pack")


@pytest.fixture
def card(pack: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run an action on the pack; its exit code and its object."""

    def run(action: str, *words: object) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["card", action, "--pack", str(pack), "--json", *map(str, words)])
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert answer["ok"] == (code == 0) and answer["exit_code"] == code
        return code, answer

    return run


@pytest.fixture
def proven(pack: Path, runs: Path, card: Run) -> Path:
    """The pack with reports for its claim of parity."""
    assert card("update", report(runs, pack, "1.0"), report(runs, pack, "2.0"))[0] == 0
    return pack
