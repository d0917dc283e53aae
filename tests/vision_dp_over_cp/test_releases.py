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
from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_dp_over_cp.sites import FAMILIES
from tests.adapters import seen
from tests.releases import original

ADAPTERS = adapters(FAMILIES)
RELEASES = ("0.3.1", "0.4.2", "0.5.1", "0.6.2")
REVISIONS = {"v0.3.0": "0.3", "v0.4.0": "0.4", "v0.5.0": "0.5", "v0.6.0": "0.6", "067f987df": "main"}


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


def check(path: Path, release: str) -> None:
    expected = seen(ADAPTERS, release)
    target = discover(path)
    rows = scan.scan(target, technique="vision-dp-over-cp")
    assert {row.family: f"{row.outcome.value} {row.reason}" for row in rows} == expected
    assert len(rows) == len(expected)
    written = {adapter.family for adapter in ADAPTERS if adapter.edits}
    applicable = {family for family, verdict in expected.items() if verdict.startswith("applicable ")}
    assert {row.family for row in rows if row.plannable} == written & applicable
    for row in rows:
        assert row.evidence
        for where in row.evidence:
            file, _, line = where.rpartition(":")
            assert 0 < int(line) <= (target.root / file).read_text(encoding="utf-8").count("\n")


@pytest.mark.parametrize("version", RELEASES)
def test_release(version: str) -> None:
    check(release(version), version.rpartition(".")[0])


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
    check(release("0.6.2"), "0.6")
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
