"""Eval runs on forked ranks, from a process that makes the imports once for all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("evals") / "forked.py"


def forked(folder: Path, specs: list[dict[str, Any]], *, script: Path = SCRIPT, python: str = sys.executable) -> Any:
    """What the script prints of each spec: its statuses by row."""
    path = folder / "specs.json"
    path.write_text(json.dumps(specs))
    ran = subprocess.run([python, str(script), str(path)], capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.splitlines()[-1])
