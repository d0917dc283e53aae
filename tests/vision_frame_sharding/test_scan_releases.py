"""The verdict on every family of real code: wheels in SKILLGEN_RELEASES, main of SKILLGEN_AUTOMODEL_REPO."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from skillgen.engine.scan import scan
from skillgen.kernel.model import Row
from skillgen.kernel.source import Source
from skillgen.kernel.target import discover
from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_frame_sharding import sites as frame_sites
from tests.adapters import seen
from tests.releases import original

automodel_rows = partial(scan, technique=frame_sites.TECHNIQUE)

HOOKLESS = "refused no-context-parallel-hook"
# Families that need no adapter, as their files alone say why nothing is to be patched.
WITHOUT = {
    "0.4": "kimi_k25_vl kimivl mistral4 nemotron_parse qwen3_omni_moe qwen3_vl_moe",
    "0.5": "bagel gemma4_drafter llava_onevision mistral3_vlm qwen2_5_omni",
    "0.6": "inkling llama_nemotron_vl",
    "main": "gemma4_unified",
    "0.7": "ministral_bidirectional",
}
ODD = {"deepseek_v41": "refused context-parallel-rejects-images", "qwen3_8_flash_next": "refused no-vision-tower"}
RELEASES = {"0.4.0": "0.4", "0.5.0": "0.5", "0.6.0": "0.6", "0.7.0": "0.7", "main": "main"}
KD = "distillation-publishes-nothing"
WEAK = {"defect:cut-in-order", "defect:gather-padded", "defect:host-waits-for-tower"}


def expected(release: str) -> dict[str, str]:
    """What scan must say: of a family with an adapter what that says, of the others what their files show."""
    until = [*WITHOUT][: [*WITHOUT].index(release) + 1]
    plain = dict.fromkeys(" ".join(WITHOUT[name] for name in until).split(), HOOKLESS)
    return plain | (ODD if release == "0.7" else {}) | seen(adapters(frame_sites.FAMILIES), release)


def tree(version: str) -> Path:
    """The unpacked wheel of a release, or the checkout of main."""
    if version == "main":
        repo = os.environ.get("SKILLGEN_AUTOMODEL_REPO")
        if not repo:
            pytest.skip("SKILLGEN_AUTOMODEL_REPO names no checkout of NeMo Automodel")
        return Path(repo)
    return original(f"automodel-{version}")


def rows(version: str) -> dict[str, Row]:
    return {row.family: row for row in automodel_rows(discover(tree(version), "automodel"))}


def notes(row: Row) -> set[str]:
    return {note.split()[0] for note in row.notes if " " in note}


@pytest.mark.parametrize("version", RELEASES)
def test_release(version: str) -> None:
    target = discover(tree(version), "automodel")
    found = automodel_rows(target)
    wanted = expected(RELEASES[version])
    assert {row.family: f"{row.outcome.value} {row.reason}" for row in found} == wanted
    assert len(found) == len(wanted)
    for row in found:
        assert row.plannable == wanted[row.family].startswith(("applicable ", "upgrade ")), row.family
        assert row.evidence and row.detail
        for where in row.evidence:
            file, _, line = where.rpartition(":")
            assert 0 < int(line) <= (target.root / file).read_text(encoding="utf-8").count("\n")


def test_notes_of_the_release_that_embeds_before_context_parallelism() -> None:
    found = rows("0.5.0")
    assert notes(found["qwen3_5_moe"]) == {"no-gradient-before-cp", "video-grid-missing"}
    assert notes(found["step3p7"]) == {"no-gradient-before-cp"}
    assert notes(found["nemotron_omni"]) == {"no-gradient-before-cp", "loop-stays-replicated"}


@pytest.mark.parametrize("version", ["0.6.0", "0.7.0", "main"])
def test_notes_of_the_releases_that_embed_in_forward(version: str) -> None:
    found = rows(version)
    assert notes(found["qwen3_vl"]) == {*WEAK, KD}
    for family in ("qwen3_5", "qwen3_5_moe"):
        assert notes(found[family]) == {*WEAK, "defect:modalities-apart", KD}
    assert notes(found["minimax_m3_vl"]) == notes(found["gemma4_moe"]) == {KD}
    assert notes(found["step3p7"]) == {"tower-under-cp-dispatcher", KD}
    assert notes(found["nemotron_omni"]) == {"loop-stays-replicated", KD}


def test_units_and_forms() -> None:
    found = rows("0.7.0")
    units = {family: row.notes[0].removeprefix("unit:") for family, row in found.items() if row.plannable}
    frames = dict.fromkeys(
        ["glm5_next", "mimo_v2_flash", "muse_glimmer", "qwen3_5", "qwen3_5_moe", "qwen3_vl"], "frame"
    )
    assert {family: units[family] for family in frames} == frames
    assert units["minimax_m3_vl"] == "entry"  # a video that is cut has other features


def test_a_scan_parses_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = set()
    module = Source.module

    def recorded(self: Source, path: str):
        parsed.add(path)
        return module(self, path)

    monkeypatch.setattr(Source, "module", recorded)
    assert rows("0.7.0")
    assert len(parsed) < 80
