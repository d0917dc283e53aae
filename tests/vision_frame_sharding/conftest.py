"""A family of our own among the real ones."""

from __future__ import annotations

import pytest

from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_frame_sharding import sites as frame_sites
from tests.vision_frame_sharding.frames import TOY


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found like the others."""
    known = (*adapters(frame_sites.FAMILIES), TOY)
    monkeypatch.setattr(frame_sites, "adapters", lambda families: known)
