"""The server as a process: its stdout, its end, a cancelled call, and what it says where it cannot start."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.trees import write

MCP = [sys.executable, "-m", "skillgen", "mcp"]
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "0"},
}
WAITS = """
import time
from pathlib import Path
from skillgen.cli import commands
def wait(args):
    pipe = Path(args.target).parent / "pipe"
    try:
        pipe.write_text("started")
        time.sleep(60)
    finally:
        pipe.write_text("ended")
commands.COMMANDS["status"] = wait
"""


pytest.importorskip("mcp", reason="the Model Context Protocol's SDK is not installed: pip install 'PACK[mcp]'")


class Raw:
    """A client that speaks lines, to see all that comes."""

    def __init__(self, *options: object, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*MCP, *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        self.count = 0

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        self.tell(method, id=self.count, params=parameters)
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 60)[0], "no answer within a minute"
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert answer["jsonrpc"] == "2.0" and answer["id"] == self.count, answer
        return answer

    def tell(self, method: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}) + "\n")
        self.process.stdin.flush()

    def start(self) -> Raw:
        assert self.ask("initialize", **HELLO)["result"]["serverInfo"]["name"] == "skillgen"
        self.tell("notifications/initialized")
        return self


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path / "tree/megatron/bridge")
    return tmp_path / "tree"


class Waiting(Raw):
    """A server on which a `status` runs that takes a minute, and tells when it starts and ends."""

    def __init__(self, tree: Path) -> None:
        site, pipe = tree.parent / "site", tree.parent / "pipe"
        site.mkdir()
        (site / "sitecustomize.py").write_text(WAITS)
        os.mkfifo(pipe)
        self.pipe = os.open(pipe, os.O_RDWR)
        super().__init__("--root", tree, environment={"PYTHONPATH": str(site)})
        self.start()
        self.tell("tools/call", id="long", params={"name": "status", "arguments": {"target": str(tree)}})
        assert self.heard() == "started"

    def heard(self) -> str:
        assert select.select([self.pipe], [], [], 60)[0], "nothing within a minute"
        return os.read(self.pipe, 100).decode()


def test_stdout_holds_the_protocol_alone(tree: Path) -> None:
    server = Raw("--root", tree, "--allow-write").start()
    for tool, more in {"list": {}, "scan": {"target": str(tree)}, "status": {"target": "/"}}.items():
        result = server.ask("tools/call", name=tool, arguments=more)["result"]
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert server.ask("tools/call", name="none", arguments={})["error"]["code"] == -32602
    rest, _ = server.process.communicate(timeout=60)
    assert rest == "" and server.process.returncode == 0


MALFORMED = {
    "{": (None, -32700),
    "[" * 9000: (None, -32700),
    "[]": (None, -32600),
    "null": (None, -32600),
    '{"jsonrpc": "1.0", "id": "a", "method": "ping"}': ("a", -32600),
    '{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": []}': (7, -32600),
    '{"jsonrpc": "2.0", "id": 7}': (7, -32600),
    '{"jsonrpc": "2.0", "method": 3}': (None, -32600),
    '{"jsonrpc": "2.0", "id": 7, "result": 3}': (None, -32600),  # an answer, whose id is of another count
    '{"jsonrpc": "2.0", "error": {"id": 7}}': (None, -32600),
    '{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "list", "arguments": {"a": "\\ud800"}}}': (
        7,
        -32602,
    ),
    '{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}': (None, -32700),
}


@pytest.mark.parametrize("started", [False, True])
def test_what_is_no_message_is_answered(started: bool, tree: Path) -> None:
    server = Raw("--root", tree)
    if started:
        server.start()
    lines = "".join(f"\n{line}\n" for line in MALFORMED)  # an empty line is none
    said, _ = server.process.communicate(lines, timeout=60)
    answers = [json.loads(line) for line in said.splitlines()]
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == list(MALFORMED.values())
    assert all(answer["jsonrpc"] == "2.0" and answer["error"]["message"] for answer in answers)
    assert server.process.returncode == 0


def test_a_server_goes_on_after_what_is_no_message(tree: Path) -> None:
    server = Raw("--root", tree).start()
    assert server.process.stdin is not None and server.process.stdout is not None
    server.process.stdin.write("{\n")
    server.process.stdin.flush()
    assert json.loads(server.process.stdout.readline())["error"]["code"] == -32700
    assert server.ask("tools/call", name="list", arguments={})["result"]["structuredContent"]["ok"]
    server.process.communicate(timeout=60)


def test_a_path_that_is_no_text(tree: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tree.parent) + b"/odd\xff"))
    tree.rename(odd)
    tree.symlink_to(odd)
    server = Raw("--root", odd.parent).start()
    for tool in ("status", "scan"):
        answer = server.ask("tools/call", name=tool, arguments={"target": str(tree)})["result"]["structuredContent"]
        assert answer["ok"] and answer["target"] == str(tree.with_name("odd?"))
    server.process.communicate(timeout=60)


@pytest.mark.parametrize("way", ["stdin", signal.SIGTERM, signal.SIGINT], ids=str)
def test_the_server_ends_what_runs_before_it_ends(way: str | signal.Signals, tree: Path) -> None:
    server = Waiting(tree)
    assert server.process.stdin is not None and server.process.stdout is not None
    with server.process.stdin, server.process.stdout:
        if isinstance(way, str):
            server.process.stdin.close()
        else:
            server.process.send_signal(way)
        assert server.process.wait(timeout=60) == (0 if way == "stdin" else 130)
    assert server.heard() == "ended"


def test_a_cancelled_call_ends_its_command(tree: Path) -> None:
    server = Waiting(tree)
    assert server.ask("tools/call", name="list", arguments={})["result"]["structuredContent"]["ok"]
    server.tell("notifications/cancelled", params={"requestId": "long", "reason": "enough"})
    assert server.heard() == "ended"
    assert server.ask("tools/call", name="list", arguments={})["result"]["structuredContent"]["ok"]
    server.process.communicate(timeout=60)
    assert server.process.returncode == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--root", "."], "missing-dependency"),
        ([], "usage"),
        (["--root", "/nonexistent"], "no-root"),
        (["--root", "~nosuch"], "no-home"),
        (["--root", "loop"], "no-root"),
        (["--root", ".", "--json"], "usage"),
    ],
    ids=lambda given: given if isinstance(given, str) else None,
)
def test_a_server_that_cannot_start(options: list[str], code: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    without = "import sys; sys.modules['mcp'] = None; " if code == "missing-dependency" else "import sys; "
    run = f"{without}from skillgen.cli.parser import main; sys.exit(main(['mcp', *sys.argv[1:]]))"
    done = subprocess.run(
        [sys.executable, "-c", run, *options], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    said = json.loads(done.stdout)["error"]["code"] if "--json" in options else done.stderr
    assert done.returncode == 2 and code in said
    if code == "missing-dependency":
        assert "pip install 'mcp>=2,<3'" in said and done.stdout == ""
