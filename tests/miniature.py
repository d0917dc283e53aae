"""Miniature targets: a few files of our own under the folders of a real package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from skillgen.kernel.target import Target, discover

Tree = Callable[[Mapping[str, str | bytes]], Target]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Write files (paths relative to `megatron/bridge`) and discover the target."""

    def write(files: Mapping[str, str | bytes]) -> Target:
        for path, text in {"__init__.py": "", **files}.items():
            file = tmp_path / "megatron" / "bridge" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return discover(tmp_path)

    return write
