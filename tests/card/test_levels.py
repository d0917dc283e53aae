"""A claim has the level that reports of the code as it is show for all of its cases, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.card.packs import Run, cases, evidence, levels, report
from tests.report.records import row

PLACES = ["proof/share-it/automodel-1.0.json", "proof/share-it/automodel-2.0.json"]


def test_reports_of_every_release_prove_a_claim(proven: Path, card: Run) -> None:
    assert levels(proven) == {"parity": "cpu_verified", "cost": "unproven", "main": "unproven", "gpu": "unproven"}
    assert evidence(proven, "parity") == PLACES and evidence(proven, "gpu") == []
    assert card("check")[0] == 0


def test_a_skill_says_what_the_pack_says(proven: Path) -> None:
    told = yaml.safe_load((proven / "skills/share-it/config/card.yaml").read_text())
    assert told["claims"][0] == {
        "id": "parity",
        "statement": "Both arms agree.",
        "level": "cpu_verified",
        "evidence": PLACES,
    }
    assert told["validation_status"] == "unproven" and told["evidence"] == PLACES
    assert told["validated_on"] == ["automodel 1.0, cpu_verified", "automodel 2.0, cpu_verified"]
    assert told["title"] == "share-it" and told["failure_modes"] == [{"name": "a"}]


LACKING: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a family": (cases("f"), "2.0, g, parity: no case 'CP 2, *' passed"),
    "a case": ([*cases("f"), *cases("g")[:1]], "2.0, g, parity: no case 'CP 4 [2,2]' passed"),
    "a kind": ([{**case, "kind": "cost"} for case in cases("f", "g")], "2.0, f, parity: no case"),
    "a skip that is not allowed": (
        [*cases("f", "g"), row("skipped", "CP 2, video", family="f")],
        "2.0, f, parity: CP 2, video skipped: why CP 2, video",
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_report_that_lacks_something_proves_nothing(name: str, pack: Path, runs: Path, card: Run) -> None:
    rows, why = LACKING[name]
    assert card("update", report(runs, pack, "1.0"), report(runs, pack, "2.0", rows))[0] == 0
    assert levels(pack)["parity"] == "unproven" and evidence(pack, "parity") == []
    told = {row["claim"]: row["why"] for row in card("check")[1]["rows"]}
    assert why in told["parity"]


def test_a_release_without_a_report_leaves_the_claim_unproven(pack: Path, runs: Path, card: Run) -> None:
    card("update", report(runs, pack, "2.0"))
    assert levels(pack)["parity"] == "unproven"
    assert "automodel 1.0, f, parity: no report" in card("check")[1]["rows"][0]["why"]


HARDWARE = {
    "gloo": ({"backend": "gloo"}, "cpu_verified", ""),
    "gloo on two hosts": ({"backend": "gloo", "hosts": ["a", "b"]}, "cpu_verified", "-2-hosts"),
    "NCCL": ({"backend": "nccl", "gpu": ["H200"]}, "gpu_verified", "-nccl"),
    "NCCL on two hosts": (
        {"backend": "nccl", "gpu": ["H200"], "hosts": ["a", "b"]},
        "cluster_verified",
        "-nccl-2-hosts",
    ),
}


@pytest.mark.parametrize("name", HARDWARE)
def test_the_level_is_that_of_the_hardware(name: str, pack: Path, runs: Path, card: Run) -> None:
    changes, level, suffix = HARDWARE[name]
    card("update", report(runs, pack, "1.0", **changes), report(runs, pack, "2.0", **changes))
    assert levels(pack)["parity"] == level
    assert evidence(pack, "parity") == [place.replace(".json", f"{suffix}.json") for place in PLACES]
    assert levels(pack)["gpu"] == ("unproven" if level == "cpu_verified" else level)


def test_the_weakest_release_counts(proven: Path, runs: Path, card: Run) -> None:
    card("update", report(runs, proven, "2.0", backend="nccl", gpu=["H200"]))
    assert levels(proven)["parity"] == "cpu_verified" and levels(proven)["gpu"] == "gpu_verified"
    assert evidence(proven, "parity") == [PLACES[0], PLACES[1].replace(".json", "-nccl.json")]
    told = yaml.safe_load((proven / "skills/share-it/config/card.yaml").read_text())
    assert told["validated_on"][1] == "automodel 2.0, gpu_verified"


def test_main_is_the_commit_that_the_card_names(proven: Path, runs: Path, card: Run) -> None:
    card("update", report(runs, proven, "ffffffffffff", cases("f")))
    assert levels(proven)["main"] == "unproven"
    card("update", report(runs, proven, "abc123456789", cases("f")))
    assert levels(proven)["main"] == "cpu_verified"
    assert evidence(proven, "main") == ["proof/share-it/automodel-main.json"]


@pytest.mark.parametrize("label", ["../../x", "a b", "a/b", ""])
def test_a_label_is_part_of_a_file_name(proven: Path, runs: Path, card: Run, label: str) -> None:
    before = sorted((proven / "proof").rglob("*"))
    code, answer = card("update", "--label", label, report(runs, proven, "2.0"))
    assert code == 2 and answer["error"]["code"] == "bad-label" and repr(label) in answer["error"]["message"]
    assert sorted((proven / "proof").rglob("*")) == before


def test_a_label_keeps_a_report_beside_another(proven: Path, runs: Path, card: Run) -> None:
    cost = [row("passed", "CP 2", kind="cost")]
    assert card("update", "--label", "trained", report(runs, proven, "2.0", cost))[0] == 0
    assert levels(proven) == {"parity": "cpu_verified", "cost": "cpu_verified", "main": "unproven", "gpu": "unproven"}
    assert evidence(proven, "cost") == ["proof/share-it/automodel-2.0-trained.json"]


def test_evidence_holds_what_a_claim_rests_on_and_no_more(pack: Path, runs: Path, card: Run) -> None:
    numbers = {"step ms, sharded": [1.0, 2.0]}
    rows = [*cases("f"), *({**case, "numbers": numbers, "traceback": "no"} for case in cases("g"))]
    rows[1]["checks"] = {"must not": [0.0, 0.0], "at most": [2.0, 3.0]}
    command = "skillgen eval share-it /somewhere/tree --mcore /home/me/core"
    card("update", report(runs, pack, "2.0", rows, command=command))
    text = (pack / PLACES[1]).read_text()
    assert "skillgen eval share-it tree --mcore core" in text and '"features": [1.23e-07, 1e-05]' in text
    assert not [word for word in ("/somewhere", "/home", "numbers", "traceback") if word in text]
    assert '"checks": {"at most": [2.0, 3.0]}, "zeros": 1' in text and len(text.splitlines()) < 40


def test_a_documented_claim_stays_so(pack: Path, card: Run) -> None:
    place = pack / "card.yaml"
    said = "It is said., level: {}, evidence: [{}]"
    place.write_text(place.read_text().replace(said.format("unproven", ""), said.format("documented", "docs/said.md")))
    card("update")
    code, answer = card("check")
    assert code == 1 and answer["error"]["where"] == "docs/said.md"
    (pack / "docs").mkdir()
    (pack / "docs/said.md").write_text("It is so.\n")
    assert card("check")[0] == 0
