"""A client of the protocol's SDK, and a server process that it talks to over stdio."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.trees import write

pytest.importorskip("mcp.types", reason="the Model Context Protocol's SDK is not installed: pip install 'PACK[mcp]'")

import jsonschema
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

Connect = Callable[..., AbstractContextManager["Server"]]


class Server:
    """One server process; every answer is checked against the schema that its tool declares."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self.portal, self.client = portal, client
        self.tools = {tool.name: tool for tool in portal.call(client.list_tools).tools}

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.portal.call(self.client.call_tool, tool, arguments)
        answer: dict[str, Any] = result.structured_content
        jsonschema.validate(answer, self.tools[tool].output_schema)
        assert result.is_error == (not answer["ok"]) == (answer["exit_code"] != 0) == (answer["error"] is not None)
        assert answer["command"] == tool
        return answer

    def refused(self, tool: str, **arguments: Any) -> tuple[int, str]:
        """Exit code and code of a refusal; the next call shows that the server goes on."""
        answer = self(tool, **arguments)
        assert answer["rows"] == [] and answer["error"]["message"]
        return answer["exit_code"], answer["error"]["code"]


@contextmanager
def connection(*options: object) -> Iterator[Server]:
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "skillgen", "mcp", *map(str, options)])
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(parameters))) as client,
    ):
        yield Server(portal, client)


@pytest.fixture(scope="session")
def connect() -> Connect:
    """Start a server with options of the test's own."""
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
def reader(home: Path) -> Iterator[Server]:
    """A server that may neither write nor run."""
    with connection("--root", home) as server:
        yield server


@pytest.fixture(scope="module")
def writer(home: Path) -> Iterator[Server]:
    """A server that may do both."""
    with connection("--root", home, "--allow-write", "--allow-run") as server:
        yield server
