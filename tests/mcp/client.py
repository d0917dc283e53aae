"""A client of the protocol's SDK, and the server process that it talks to over stdio."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import jsonschema
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from skillgen.cli.parser import build_parser
from skillgen.mcp import tools as mcp_tools

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


@contextmanager
def tools_for_commands(root: Path) -> Iterator[Callable[[list[str]], dict[str, Any]]]:
    """Run the words of a command by the tool of that name, on a server that may write and run."""
    with connection("--root", root, "--allow-write", "--allow-run") as server:

        def say(words: list[str]) -> dict[str, Any]:
            given = vars(build_parser().parse_args(words))
            names = mcp_tools.TOOLS[words[0]].arguments
            return server(words[0], **{name: given[name] for name in names if given[name] is not None})

        yield say
