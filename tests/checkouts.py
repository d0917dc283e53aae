"""Git checkouts of a revision of a target, from a clone that an environment variable names."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest


def unpack(variable: str, revision: str, into: Path, parts: Sequence[str]) -> Path:
    """The parts of a revision that it has, without git; skips where there is no clone or no such revision."""
    repo = os.environ.get(variable)
    if not repo:
        pytest.skip(f"{variable} names no clone of the target")
    git = ["git", "-C", repo]
    listed = subprocess.run([*git, "ls-tree", "--name-only", revision, *parts], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"{variable} does not have {revision}")
    packed = subprocess.run([*git, "archive", revision, *listed.stdout.split()], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(into, filter="data")
    return into


def checkout(variable: str, revision: str, into: Path, parts: Sequence[str]) -> Path:
    """The same as a clean git checkout of one commit."""
    unpack(variable, revision, into, parts)
    name = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q"], ["add", "-A", "-f"], [*name, "commit", "-q", "-m", "start"]):
        subprocess.run(["git", *command], cwd=into, check=True)
    return into
