"""Miniature targets: a few files of our own under the folders of a real package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from skillgen import frame_sites, vision_sites
from skillgen.adapters import frame_adapters
from skillgen.model import Row
from skillgen.target import Target, discover
from tests.scan.frames import TOY

Tree = Callable[[Mapping[str, str | bytes]], Target]
Verdict = Callable[[Mapping[str, str | bytes]], Row]


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


@pytest.fixture
def verdict(tree: Tree) -> Verdict:
    """The only row of a miniature target."""

    def classify(files: Mapping[str, str | bytes]) -> Row:
        rows = vision_sites.classify(tree(files))
        assert len(rows) == 1, [(row.family, row.outcome.value, row.reason) for row in rows]
        return rows[0]

    return classify


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family of our own among the real ones."""
    known = (*frame_adapters("automodel"), TOY)
    monkeypatch.setattr(frame_sites, "frame_adapters", lambda product: known)
