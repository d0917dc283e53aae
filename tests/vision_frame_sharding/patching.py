"""Copies of NeMo Automodel to patch, where an environment variable says from what, and the command line on them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from skillgen.cli.parser import main
from skillgen.kernel.errors import DRIFT
from tests import checkouts, releases
from tests.ledger.trees import snapshot

TECHNIQUE = "vision-frame-sharding"
PACKAGE = "nemo_automodel"


def released(version: str, tmp_path: Path) -> Path:
    """A copy of an unpacked release that `make` has fetched."""
    return releases.copy(f"automodel-{version}", tmp_path)


def checkout(revision: str, tmp_path: Path) -> Path:
    """A git checkout of a revision, with the target's tests, docs and ruff configuration."""
    parts = (PACKAGE, "tests/unit_tests", "docs", "examples/vlm_finetune", "pyproject.toml", "tools")
    return checkouts.checkout("SKILLGEN_AUTOMODEL_REPO", revision, tmp_path / "checkout", parts)


def call(command: str, tree: Path, *options: str, families: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
    """Run a command with --json: its exit code and its answer."""
    technique = [] if command == "status" else [TECHNIQUE]
    words = [word for family in families for word in ("--family", family)]
    out = io.StringIO()
    with redirect_stdout(out):
        code = main([command, *technique, str(tree), *words, *options, "--json"])
    return code, json.loads(out.getvalue())


def done(command: str, tree: Path, *options: str, families: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Run a command that must work: its rows."""
    code, answer = call(command, tree, *options, families=families)
    assert code == 0, answer["error"]
    rows: list[dict[str, Any]] = answer["rows"]
    return rows


def is_drift(tree: Path, path: str, old: str, new: str, sought: str, *, family: str) -> None:
    """With `new` in the place of `old` a file is drift that names what was sought, and nothing is written."""
    file = tree / PACKAGE / path
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    before = snapshot(tree)
    code, answer = call("apply", tree, families=[path.split("/")[2] if "models" in path else family])
    assert code == DRIFT
    assert sought in answer["error"]["message"] + answer["error"]["hint"]
    assert answer["error"]["where"].startswith(f"{PACKAGE}/{path}")
    assert snapshot(tree) == before
