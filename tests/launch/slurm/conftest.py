"""These tests speak to a running Slurm; `make test-slurm` starts one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.releases import small

RANKS = os.environ.get("SKILLGEN_EVAL_PYTHON_AUTOMODEL", sys.executable)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a controller that answers there is nothing to test here."""
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    if not mine or ("SLURM_CONF" in os.environ and "UP" in slurm("scontrol", "ping")):
        return
    for item in mine:
        item.add_marker(pytest.mark.skip(reason="no Slurm is running: make test-slurm starts one"))


def slurm(*command: str) -> str:
    """What a command of Slurm prints."""
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()


def until(true: Callable[[], object], limit: float = 120) -> None:
    """Wait for something that another process brings about."""
    deadline = time.monotonic() + limit
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("automodel"))


@pytest.fixture(scope="session")
def sleeper(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has all it is asked for, and whose ranks hang."""
    return script(tmp_path_factory.mktemp("bin") / "python", "echo torchrun hangs; exec sleep 300")


def script(path: Path, ranks: str) -> str:
    """What stands in for an interpreter where torchrun does not matter."""
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\n{ranks}\n')
    path.chmod(0o755)
    return str(path)


class Submitted:
    """`skillgen eval --launcher slurm --submit` in a process of its own."""

    def __init__(self, tree: Path, report: Path, *options: str) -> None:
        command = [sys.executable, "-m", "skillgen", "eval", "blockdiag-gqa", str(tree), "--json"]
        command += ["--launcher", "slurm", "--submit", "--report", str(report), "--poll", "0.2", *options]
        self.report = report
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @property
    def job(self) -> str:
        """The id of its job, as soon as there is one."""
        path = self.report / "slurm" / "job"
        until(lambda: path.is_file() and path.read_text())
        return path.read_text()

    def runs(self) -> bool:
        """Whether its job does."""
        return slurm("squeue", "-h", "-j", self.job, "-o", "%T") == "RUNNING"

    def ended(self, limit: float = 120) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """Exit code, answer, report."""
        told = self.process.communicate(timeout=limit)[0]
        report = self.report / "report.json"
        return self.process.returncode, json.loads(told), json.loads(report.read_text()) if report.is_file() else {}


@pytest.fixture
def submit(tmp_path: Path, patched: Path) -> Callable[..., Submitted]:
    return lambda *options: Submitted(patched, tmp_path / "report", *options)
