"""A target whose eval is rendered as a batch script, and what the script says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from tests.blockdiag_gqa.test_blockdiag_gqa import DISPATCH, FALLBACK, MODEL, RUNTIME
from tests.vision_frame_sharding.frames import write


def patched(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One family is patched, in a world where all dependencies are there."""
    write(tree, {MODEL: DISPATCH, RUNTIME: FALLBACK})
    monkeypatch.setattr("skillgen.launch.order._need", lambda *_: None)
    assert main(["apply", "blockdiag-gqa", str(tree), "--no-lint"]) == 0
    return tree


def written(tree: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    command = ["eval", "blockdiag-gqa", str(tree), "--launcher", "slurm", "--json", *options]
    exit_code = main(command)
    answer = json.loads(capsys.readouterr().out)
    return exit_code, answer["rows"][0] if answer["rows"] else answer["error"]


def directives(text: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH ")]
    return dict(line.partition("=")[::2] for line in lines)
