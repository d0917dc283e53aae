"""Check patched files in memory: the target's own ruff says nothing new of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from skillgen.kernel.errors import REFUSED, SkillgenError
from skillgen.kernel.model import Change
from skillgen.kernel.paths import read

SETTINGS = (".ruff.toml", "ruff.toml", "pyproject.toml")  # the first in a folder counts


def lint(root: Path, changes: Sequence[Change]) -> tuple[str, ...]:
    """Compare what the target's ruff says before and after; notes where it cannot be asked."""
    ruff = find_ruff()
    if ruff is None or ruff_settings(root) is None:
        return ("ruff-not-run",)
    python = [c for c in changes if c.path.endswith(".py") and c.after is not None]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        found = list(pool.map(lambda change: _new_findings(ruff, root, change), python))
    new = [line for lines in found for line in lines]
    if new:
        raise SkillgenError(
            "ruff-findings",
            f"the target's ruff would report what it did not before: {'; '.join(new[:5])}",
            where=new[0].partition(" ")[0],
            hint="nothing was written; --no-lint goes on without this check",
            exit_code=REFUSED,
        )
    return ()


def find_ruff() -> str | None:
    """The ruff beside this Python, else the one on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "ruff"
    return str(beside) if beside.is_file() else shutil.which("ruff")


def ruff_settings(root: Path) -> dict[str, Any] | None:
    """The target's own ruff settings, None where it has none."""
    for name in SETTINGS:
        try:
            settings = tomllib.loads(read(root / name).decode())
        except (OSError, ValueError, SkillgenError):
            continue
        found = settings if name != "pyproject.toml" else settings.get("tool", {}).get("ruff")
        if found is not None:
            return dict(found)
    return None


def line_length(root: Path) -> int:
    """The length of a line that the target's formatter keeps to; 119 where it brings no settings."""
    return int((ruff_settings(root) or {}).get("line-length", 119))


def _new_findings(ruff: str, root: Path, change: Change) -> list[str]:
    assert change.after is not None
    after = _findings(ruff, root, change.path, change.after)
    if not after:
        return []
    before = _findings(ruff, root, change.path, change.before) if change.before is not None else Counter()
    return [f"{change.path} {finding}" for finding in (after - before)]


def _findings(ruff: str, root: Path, path: str, source: bytes) -> Counter[str]:
    """Ruff's complaints on one file, without line numbers: those move."""
    common = ["--no-cache", "--force-exclude", "--stdin-filename", str(root / path), "-"]
    checked = _run([ruff, "check", "--output-format", "json", *common], root, source)
    found = Counter(f"{item['code']} {item['message']}" for item in json.loads(checked.stdout or "[]"))
    if _run([ruff, "format", "--check", *common], root, source).returncode == 1:
        found["format: the formatter would change it"] += 1
    return found


def _run(command: list[str], root: Path, source: bytes) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(command, input=source, cwd=root, capture_output=True, check=False)
    if done.returncode > 1:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise SkillgenError(
            "ruff-failed",
            f"the target's ruff settings cannot be used: {reason[-1] if reason else done.returncode}",
            where=str(root),
            hint="--no-lint goes on without this check",
        )
    return done
