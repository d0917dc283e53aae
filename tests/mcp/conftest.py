"""Servers to talk to, and trees within their root."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.trees import write

if TYPE_CHECKING:
    from tests.mcp.client import Connect, Server


@pytest.fixture(scope="session")
def connect() -> Connect:
    """Start a server with options of the test's own."""
    pytest.importorskip("mcp", reason="the Model Context Protocol's SDK is not installed: pip install 'PACK[mcp]'")
    from tests.mcp.client import connection

    return connection


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the servers of one module."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def tree(home: Path) -> Path:
    """A miniature Megatron-Bridge of this test's own, within the root."""
    root = Path(tempfile.mkdtemp(dir=home))
    write(root / "megatron/bridge")
    return root


@pytest.fixture(scope="module")
def reader(connect: Connect, home: Path) -> Iterator[Server]:
    """A server that may neither write nor run."""
    with connect("--root", home) as server:
        yield server


@pytest.fixture(scope="module")
def writer(connect: Connect, home: Path) -> Iterator[Server]:
    """A server that may do both."""
    with connect("--root", home, "--allow-write", "--allow-run") as server:
        yield server
