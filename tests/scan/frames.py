"""Miniature trees of NeMo Automodel: a few files of our own under the folders of a real package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from skillgen import frame_sites
from skillgen.model import Row
from skillgen.target import Target, discover

Tree = Callable[[Mapping[str, str | bytes]], Target]
IN_FORWARD = "components/distributed/cp_vision_frame_shard.py"  # what tells 0.6.0 and later


def write(root: Path, files: Mapping[str, str | bytes]) -> Target:
    """Write files (paths relative to `nemo_automodel`) and discover the target."""
    for path, text in {"__init__.py": "", **files}.items():
        file = root / "nemo_automodel" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return discover(root, "automodel")


def only(target: Target) -> Row:
    """The one row of a target."""
    rows = frame_sites.classify(target)
    assert len(rows) == 1, [(row.family, row.outcome.value, row.reason) for row in rows]
    return rows[0]
