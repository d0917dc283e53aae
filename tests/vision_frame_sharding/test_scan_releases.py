"""The verdict on every family of real code: wheels in SKILLGEN_RELEASES, main of SKILLGEN_AUTOMODEL_REPO."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillgen.kernel.model import Row
from skillgen.kernel.source import Source
from skillgen.kernel.target import discover
from skillgen.techniques.vision_frame_sharding import sites as frame_sites
from tests.releases import original

NO_HOOK, NO_TOWER = "refused no-context-parallel-hook", "refused no-vision-tower"
APPLICABLE, UPGRADE = "applicable replicated-encoder", "upgrade sharded-already"


def verdicts(verdict: str, families: str) -> dict[str, str]:
    return dict.fromkeys(families.split(), verdict)


V04 = verdicts(
    NO_HOOK, "gemma4_moe kimi_k25_vl kimivl mistral4 nemotron_parse qwen3_5_moe qwen3_omni_moe qwen3_vl_moe"
)
V05 = (
    V04
    | verdicts(NO_HOOK, "bagel gemma4_drafter llava_onevision mistral3_vlm qwen2_5_omni qwen3_5")
    | verdicts(APPLICABLE, "nemotron_omni qwen3_5_moe step3p7")
)
V06 = (
    V05
    | verdicts(NO_HOOK, "inkling llama_nemotron_vl")
    | verdicts(NO_TOWER, "diffusion_gemma qwen_image_edit")
    | verdicts(APPLICABLE, "gemma4_moe minimax_m3_vl")
    | verdicts(UPGRADE, "qwen3_5 qwen3_5_moe qwen3_vl")
    | {"kimi_k3": "refused length-changes-in-forward"}
)
MAIN = V06 | {"gemma4_unified": NO_HOOK, "muse_glimmer": APPLICABLE}
V07 = (
    MAIN
    | verdicts(APPLICABLE, "glm5_next mimo_v2_flash")
    | verdicts(NO_TOWER, "hunyuan_image3 mimo_v25 qwen3_8_flash_next")
    | {
        "deepseek_v4": "refused ids-cut-before-encoder",
        "deepseek_v41": "refused context-parallel-rejects-images",
        "ministral_bidirectional": NO_HOOK,
    }
)
RELEASES = {"0.4.0": V04, "0.5.0": V05, "0.6.0": V06, "0.7.0": V07, "main": MAIN}
KD = "distillation-publishes-nothing"
WEAK = {"defect:cut-in-order", "defect:gather-padded", "defect:host-waits-for-tower"}


def tree(version: str) -> Path:
    """The unpacked wheel of a release, or the checkout of main."""
    if version == "main":
        repo = os.environ.get("SKILLGEN_AUTOMODEL_REPO")
        if not repo:
            pytest.skip("SKILLGEN_AUTOMODEL_REPO names no checkout of NeMo Automodel")
        return Path(repo)
    return original(f"automodel-{version}")


def rows(version: str) -> dict[str, Row]:
    return {row.family: row for row in frame_sites.classify(discover(tree(version), "automodel"))}


def notes(row: Row) -> set[str]:
    return {note.split()[0] for note in row.notes if " " in note}


@pytest.mark.parametrize("version", RELEASES)
def test_release(version: str) -> None:
    target = discover(tree(version), "automodel")
    found = frame_sites.classify(target)
    assert {row.family: f"{row.outcome.value} {row.reason}" for row in found} == RELEASES[version]
    assert len(found) == len(RELEASES[version])
    for row in found:
        assert row.plannable == (RELEASES[version][row.family] in (APPLICABLE, UPGRADE)), row.family
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
    frames = verdicts("frame", "glm5_next mimo_v2_flash muse_glimmer qwen3_5 qwen3_5_moe qwen3_vl")
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
