"""Two torchruns on this machine stand for two nodes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.releases import small

pytestmark = pytest.mark.evals

PYTHON = os.environ.get("SKILLGEN_EVAL_PYTHON_AUTOMODEL", sys.executable)


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("automodel"))


def test_two_nodes_that_share_no_folder_end_alike(tmp_path: Path, patched: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        endpoint = f"127.0.0.1:{held.getsockname()[1]}"
    command = [sys.executable, "-m", "skillgen", "eval", "blockdiag-gqa", str(patched), "--python", PYTHON]
    command += ["--kind", "crash", "--nproc", "1", "--nnodes", "2", "--rdzv-endpoint", endpoint, "--timeout", "120"]
    nodes = [
        subprocess.Popen(
            [*command, "--report", str(tmp_path / node)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for node in ("0", "1")
    ]
    told = [node.communicate(timeout=150)[0].decode() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], told
    records: list[dict[str, Any]] = [json.loads((tmp_path / node / "report.json").read_text()) for node in ("0", "1")]
    for record in records:
        assert record["verdict"].startswith("PASS: 1 passed, 0 failed, 0 skipped on 2 ranks (gloo)")
        assert record["command"].endswith(f"--nnodes 2 --rdzv-endpoint {endpoint}")
        assert record["environment"]["variables"]["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
    assert records[0]["rows"][0]["checks"] == records[1]["rows"][0]["checks"]
