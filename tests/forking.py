"""Eval runs on forked ranks: one process per interpreter makes the imports that cost most, and forks for each call.

A call's script has a function `main`, which takes a list of specs and returns what is asked of each.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("evals") / "forked.py"
HEAVY = ("torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor", "transformers.modeling_utils")
LIMIT = 500  # seconds for one call; what a run may take is in its spec
_servers: dict[str, subprocess.Popen[str]] = {}


def forked(folder: Path, specs: list[dict[str, Any]], *, script: Path = SCRIPT, python: str = sys.executable) -> Any:
    """What the script's `main` returns of the specs."""
    request = {"folder": str(folder), "script": str(script), "specs": specs, "environment": dict(os.environ)}
    server = _server(python)
    assert server.stdin and server.stdout
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    with selectors.DefaultSelector() as selector:
        selector.register(server.stdout, selectors.EVENT_READ)
        answered = selector.select(LIMIT)
    if not answered:
        _end(_servers.pop(python))
    said = (folder / "stderr").read_text()[-4000:] if (folder / "stderr").exists() else ""
    assert answered, f"no answer within {LIMIT} s\n{said}"
    assert server.stdout.readline() == "0\n", (folder / "stderr").read_text()[-4000:]
    return json.loads((folder / "answer.json").read_text())


def _server(python: str) -> subprocess.Popen[str]:
    if python not in _servers or _servers[python].poll() is not None:
        words = [python, __file__]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        _servers[python] = subprocess.Popen(words, text=True, start_new_session=True, **pipes)
        atexit.register(_end, _servers[python])
    return _servers[python]


def _end(server: subprocess.Popen[str]) -> None:
    """With all that it has forked."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def serve() -> None:
    """Answer a request per line by the exit status of a fork that runs it."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    for name in HEAVY:
        importlib.import_module(name)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            _answer(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _answer(request: dict[str, Any]) -> None:
    folder, status = Path(request["folder"]), 1
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
        os.environ.clear()
        os.environ.update(request["environment"])
        spec = importlib.util.spec_from_file_location("script", request["script"])
        assert spec and spec.loader
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        (folder / "answer.json").write_text(json.dumps(script.main(request["specs"])))
        status = 0
    except BaseException:  # whatever it was, the test has to hear of it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
