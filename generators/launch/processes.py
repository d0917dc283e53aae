"""Run one command with everything that it starts, under a time limit; nothing of it is left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def run(
    command: Sequence[str],
    log: Path,
    limit: float,
    *,
    environment: Mapping[str, str],
    folder: Path | None = None,
    each: Callable[[], None] = lambda: None,
) -> int | None:
    """The exit code of a command, or None if the time was up and everything was killed; `each` is called meanwhile."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=folder,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        try:
            deadline = time.monotonic() + limit
            while process.poll() is None and time.monotonic() < deadline:
                each()
                time.sleep(0.1)
        finally:
            ended = process.poll()
            _kill(process)
    each()
    return ended


def _end_with_parent() -> None:
    """Let Linux ask the command to end, which then ends its ranks, when this process is killed and can do nothing."""
    set_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_signal, signal.SIGTERM)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the command and all below it: they share its session but may have process groups of their own."""
    children = _descendants(process.pid)
    for pid in [process.pid, *children] if process.poll() is None else children:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _descendants(root: int) -> list[int]:
    """Process ids of the session that the command leads."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == root and int(entry.name) != root:
            found.append(int(entry.name))
    return found
