"""Random tests draw anew on every run at a desk, and the same examples on every run of CI; releases are shared."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import checkouts, releases

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(scope="session", autouse=True)
def _no_fsync() -> Iterator[None]:
    """No test here pulls a plug: flushing to the disk only costs time. A test's own `monkeypatch.undo` keeps this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.fixture(scope="session")
def mcore() -> Path:
    return releases.original("core-0.19.2")


@pytest.fixture(scope="session")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Megatron-Bridge 0.6.2 with two families patched; read only."""
    families = ("--family", "ministral3", "--family", "qwen3_omni")
    return releases.patched("bridge-0.6.2", tmp_path_factory.mktemp("bridge"), "vision-dp-over-cp", *families)


@pytest.fixture(scope="session")
def bridge_main(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Megatron-Bridge main of August 2026, unpatched; read only."""
    folder = tmp_path_factory.mktemp("main")
    return checkouts.unpack("SKILLGEN_BRIDGE_REPO", "067f987df", folder, ["src/megatron/bridge"])
