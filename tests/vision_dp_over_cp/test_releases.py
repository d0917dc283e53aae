"""The verdict on every family of real code: wheels in SKILLGEN_RELEASES, revisions of SKILLGEN_BRIDGE_REPO."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from skillgen.engine import scan
from skillgen.kernel.source import Source
from skillgen.kernel.target import discover
from tests.releases import original

NO_CP, CORE = "refused no-context-parallel", "refused call-site-in-megatron-core"
APPLICABLE, UPGRADE, MIMO = "applicable replicated-encoder", "upgrade sharded-already", "refused out-of-tree-encoder"
V03 = {
    "gemma3_vl": APPLICABLE,
    "glm_vl": NO_CP,
    "ministral3": APPLICABLE,
    "nemotron_vl": CORE,
    "qwen25_vl": NO_CP,
    "qwen3_vl": NO_CP,
}
V04 = V03 | {"kimi_vl": NO_CP, "megatron_mimo": MIMO, "qwen25_omni": APPLICABLE, "qwen3_vl": UPGRADE}
V05 = V04 | {
    "ernie_vl": NO_CP,
    "gemma4_vl": APPLICABLE,
    "nemotron_omni": CORE,
    "qwen3_omni": APPLICABLE,
    "stepfun": NO_CP,
}
V06 = V05 | {
    "exaone45": UPGRADE,
    "gemma3_vl": "refused context-parallel-rejected",
    "kimi_vl": APPLICABLE,
    "minimax_m3": "refused items-attend-to-one-another",
}
MAIN = V06 | {"nemotron_omni": APPLICABLE}
PLANNABLE = {"ministral3", "qwen3_omni", "nemotron_omni"}
RELEASES = {"0.3.1": V03, "0.4.2": V04, "0.5.1": V05, "0.6.2": V06}
REVISIONS = {"v0.3.0": V03, "v0.4.0": V04, "v0.5.0": V05, "v0.6.0": V06, "067f987df": MAIN}


def release(version: str) -> Path:
    return original(f"bridge-{version}")


def revision(name: str, into: Path) -> Path:
    repo = os.environ.get("SKILLGEN_BRIDGE_REPO")
    if not repo:
        pytest.skip("SKILLGEN_BRIDGE_REPO names no checkout of Megatron-Bridge")
    command = ["git", "-C", repo, "archive", name, "src/megatron/bridge"]
    packed = subprocess.run(command, capture_output=True)
    if packed.returncode:
        pytest.skip(f"SKILLGEN_BRIDGE_REPO does not have {name}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(into, filter="data")
    return into


def check(path: Path, expected: dict[str, str]) -> None:
    target = discover(path)
    rows = scan.scan(target, technique="vision-dp-over-cp")
    assert {row.family: f"{row.outcome.value} {row.reason}" for row in rows} == expected
    assert len(rows) == len(expected)
    applicable = {family for family, verdict in expected.items() if verdict == APPLICABLE}
    assert {row.family for row in rows if row.plannable} == PLANNABLE & applicable
    for row in rows:
        assert row.evidence
        for where in row.evidence:
            file, _, line = where.rpartition(":")
            assert 0 < int(line) <= (target.root / file).read_text(encoding="utf-8").count("\n")


@pytest.mark.parametrize("version", RELEASES)
def test_release(version: str) -> None:
    check(release(version), RELEASES[version])


@pytest.mark.parametrize("name", REVISIONS)
def test_revision(name: str, tmp_path: Path) -> None:
    check(revision(name, tmp_path), REVISIONS[name])


def test_parses_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = set()
    module = Source.module

    def recorded(self: Source, path: str):
        parsed.add(path)
        return module(self, path)

    monkeypatch.setattr(Source, "module", recorded)
    check(release("0.6.2"), V06)
    assert len(parsed) < 60


def test_existing_sharding_and_its_defects() -> None:
    rows = {row.family: row for row in scan.scan(discover(release("0.6.2")), technique="vision-dp-over-cp")}
    found = {
        family: {note.split()[0].removeprefix("defect:") for note in rows[family].notes if note.startswith("defect:")}
        for family in ("exaone45", "qwen3_vl")
    }
    assert found == {
        "exaone45": {
            "idle-rank-skips-tower",
            "placeholder-type-fixed",
            "gather-call-incomplete",
            "split-call-overfull",
            "backward-drops-gradients",
            "split-by-count",
        },
        "qwen3_vl": {
            "idle-rank-skips-tower",
            "backward-reduces-in-place",
            "split-by-count",
            "given-split-not-expanded",
        },
    }
    assert any(note.startswith("dist-train ") for note in rows["qwen3_vl"].notes)
    assert any(note.startswith("vision-cuda-graph ") for note in rows["qwen3_vl"].notes)
