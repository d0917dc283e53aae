"""The server behind `skillgen mcp`: every tool call is one run of the command line, in a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import jsonschema
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from skillgen.cli.failure import INTERNAL, failure
from skillgen.kernel.errors import INTERRUPTED, USAGE, SkillgenError
from skillgen.kernel.product import beside, titles
from skillgen.kernel.resources import version
from skillgen.mcp import malformed as mcp_malformed
from skillgen.mcp import tools as mcp_tools
from skillgen.mcp.roots import Roots, unsettled

BEAT = 5  # seconds between two signs of life of a command that is running
PATIENCE = 10  # seconds that a cancelled command has to end its ranks and put files back
INSTRUCTIONS = f"""\
Patches trees of {titles("and")}. The loop: scan, plan (read the diff), apply, eval,
status; revert takes a patch back. Go by exit_code and error.code, do what error.hint says, and never patch by hand
what is refused. Cases of an eval that were skipped are unproven."""
Context = ServerRequestContext[Any, Any]


class Pack:
    """The tools, within the folders and the permissions of this server."""

    def __init__(self, roots: Roots, *, allow_write: bool, allow_run: bool, pythons: Sequence[str]) -> None:
        self.roots = roots
        self.allowed = {"--allow-write": allow_write, "--allow-run": allow_run}
        self.pythons = [sys.executable, *pythons]

    def tool(self, name: str) -> Tool:
        spec = mcp_tools.TOOLS[name]
        hints = ToolAnnotations(
            read_only_hint=not spec.needs and not (self.allowed["--allow-write"] and "output" in spec.arguments),
            destructive_hint=spec.removes,
            idempotent_hint=spec.repeats,
            open_world_hint=spec.runs,
        )
        return Tool(
            name=name,
            description=mcp_tools.describe(name),
            input_schema=mcp_tools.input_schema(name, self.pythons),
            output_schema=mcp_tools.output_schema(name),
            annotations=hints,
        )

    async def list_tools(self, _: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[self.tool(name) for name in mcp_tools.TOOLS])

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        if params.name not in mcp_tools.TOOLS:
            raise MCPError(INVALID_PARAMS, f"no tool is called {params.name!r}")
        arguments = params.arguments or {}
        try:
            answer = await run(params.name, self.checked(params.name, arguments), context)
        except SkillgenError as error:
            answer = refused(params.name, arguments, error)
        except OSError as error:
            answer = refused(params.name, arguments, failure(error))
        # a file's name need not be text, an answer has to be: else the SDK cannot write it, nor any after it
        answer = json.loads(json.dumps(answer, ensure_ascii=False).encode(errors="replace"))
        text = TextContent(type="text", text=json.dumps(answer))
        return CallToolResult(content=[text], structured_content=answer, is_error=not answer["ok"])

    def checked(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments with every path resolved; refused where the schema, a permission or the roots forbid it."""
        schema = mcp_tools.input_schema(name, self.pythons)
        if (wrong := jsonschema.Draft202012Validator(schema).iter_errors(arguments)) and (first := next(wrong, None)):
            where = "/".join(map(str, first.absolute_path))
            raise SkillgenError("usage", first.message, where=where, hint="see the tool's schema", exit_code=USAGE)
        self._permitted(name, mcp_tools.TOOLS[name].needs)
        checked = dict(arguments)
        try:
            if "target" in checked:
                path, target = self.roots.tree(checked["target"])
                checked["target"] = str(path)
                if target and unsettled(target):
                    self._permitted("finishing what a killed command left there", ("--allow-write",))
                if target and "no_lint" in mcp_tools.TOOLS[name].arguments and not checked.get("no_lint"):
                    self.roots.lint(target)
            core = beside()
            if core.option in checked:
                checked[core.option], _ = self.roots.tree(checked[core.option], core.name)
            for argument, place in (("report", self.roots.folder), ("output", self.roots.new_file)):
                if argument in checked:
                    self._permitted(f"{name} with {argument!r}", ("--allow-write",))
                    checked[argument] = place(checked[argument])
        except (ValueError, RuntimeError) as error:  # a null byte, a loop of links, no such user's home
            raise SkillgenError("usage", f"no path: {error}", hint="name a real path", exit_code=USAGE) from error
        return checked

    def _permitted(self, what: str, needs: Sequence[str]) -> None:
        if missing := [option for option in needs if not self.allowed[option]]:
            raise SkillgenError(
                "not-allowed",
                f"{what} needs a server that was started with {' '.join(missing)}",
                hint=f"ask the user to start it so: {self.command(missing)}",
            )

    def command(self, more: Sequence[str]) -> str:
        """The command that starts this server with more permissions."""
        words = ["skillgen", "mcp", *(word for folder in self.roots.folders for word in ("--root", str(folder)))]
        words += [option for option, allowed in self.allowed.items() if allowed or option in more]
        return shlex.join([*words, *(word for python in self.pythons[1:] for word in ("--python", python))])


async def run(name: str, arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """One run of the command line; of a plan also its diff. A cancelled call ends the run, and its ranks."""
    with tempfile.TemporaryDirectory(prefix="skillgen-mcp-") as folder:
        if name == "plan":
            arguments = {"output": Path(folder) / "patch"} | arguments
        # -P: the folder that the server was started in is no place to import from
        command = [sys.executable, "-P", "-m", "skillgen", *mcp_tools.words(name, arguments)]
        try:
            code, said = await _output(command, context)
        except ValueError as error:  # a null byte, or half a surrogate pair
            message, hint = f"no argument of a command: {error}", "take the odd character out"
            raise SkillgenError("usage", message, hint=hint, exit_code=USAGE) from error
        try:
            answer: dict[str, Any] = json.loads(said, parse_constant=str)  # JSON has no NaN
        except ValueError:
            message = f"skillgen {name} ended with exit code {code} and no answer"
            hint = "the server's error output says more"
            raise SkillgenError("internal", message, hint=hint, exit_code=INTERNAL) from None
        if name == "plan":
            patch = arguments["output"].read_bytes() if arguments["output"].is_file() else b""
            answer["diff"] = mcp_tools.shortened(patch.decode("utf-8", "replace"))
        return answer


async def _output(command: Sequence[str], context: Context) -> tuple[int | None, bytes]:
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None)
    said = bytearray()
    async with process, anyio.create_task_group() as group:
        group.start_soon(_beat, context)
        try:
            assert process.stdout is not None
            async for part in process.stdout:
                said += part
            await process.wait()
        except anyio.get_cancelled_exc_class():
            process.send_signal(signal.SIGINT)
            with anyio.move_on_after(PATIENCE, shield=True):
                await process.wait()
            raise
        group.cancel_scope.cancel()
    return process.returncode, bytes(said)


async def _beat(context: Context) -> None:
    """Tell a client that asked for it that the command is still running: many stop waiting otherwise."""
    for count in range(1, sys.maxsize):
        await anyio.sleep(BEAT)
        await context.session.report_progress(count * BEAT, message=f"running for {count * BEAT} s")


def refused(name: str, arguments: dict[str, Any], error: SkillgenError) -> dict[str, Any]:
    """A refusal of the server itself, in the form of the command line."""
    target = arguments.get("target")
    answer: dict[str, Any] = {
        "command": name,
        "target": target if isinstance(target, str) else None,
        "ok": False,
        "exit_code": error.exit_code,
        "rows": [],
        "error": error.as_json(),
    }
    return answer | ({"diff": ""} if name == "plan" else {})


def serve(pack: Pack) -> None:
    """Answer on stdin and stdout until stdin ends, or a signal comes; what runs then ends first."""
    server: Server[Any] = Server(
        "skillgen",
        version=version(),
        instructions=INSTRUCTIONS,
        on_list_tools=pack.list_tools,
        on_call_tool=pack.call_tool,
    )

    told: list[int] = []

    async def stop(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
        told.append(await anext(signals))
        scope.cancel()

    async def main() -> None:
        async with stdio_server() as (read, write):
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async with anyio.create_task_group() as group:
                    group.start_soon(stop, signals, group.cancel_scope)
                    sifted, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
                    group.start_soon(mcp_malformed.sift, read, write, sifted)
                    await server.run(messages, write, server.create_initialization_options())
                    group.cancel_scope.cancel()
            if told:
                os._exit(INTERRUPTED)  # a read of stdin that waits cannot be cancelled

    anyio.run(main)
