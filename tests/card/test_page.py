"""The compatibility page: every family of every release by technique, made from scans and reports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.card.packs import Run, cases, report
from tests.cli.trees import write

PAGE, FACTS = "docs/compatibility.md", "docs/compatibility.json"


def scanned(family: str, outcome: str = "applicable", reason: str = "sound", **more: Any) -> dict[str, Any]:
    base = {"technique": "share-it", "family": family, "outcome": outcome, "reason": reason, "detail": "a | b"}
    plannable = outcome in ("applicable", "upgrade")
    return base | {"plannable": plannable, "evidence": f"{family}.py:3", "planned": plannable} | more


@pytest.fixture
def facts(proven: Path) -> Path:
    """What scans said: `f` can be patched everywhere, `g` is not in 1.0, `h` changes, `u` has no adapter."""
    (proven / "docs").mkdir()
    told = {
        "1.0": [scanned("f"), scanned("h"), scanned("u", plannable=False)],
        "2.0": [scanned("f"), scanned("g", "upgrade"), scanned("h", "refused", "wrong")],
        "main": [scanned("f"), scanned("h", "refused", "wrong"), scanned("x", planned=False)],
    }
    releases = {
        name: {"commit": "abc123456789" if name == "main" else None, "rows": rows} for name, rows in told.items()
    }
    (proven / FACTS).write_text(json.dumps({"automodel": releases}))
    return proven


def lines(pack: Path) -> dict[str, str]:
    """The lines of both tables by their first two cells."""
    rows = [line for line in (pack / PAGE).read_text().splitlines() if line.startswith("| ")]
    return {" ".join(line.split(" | ")[:2]).strip("| "): line for line in rows}


def test_a_cell_says_how_far_a_family_is_proven(facts: Path, card: Run) -> None:
    assert card("page")[0] == 0
    page = (facts / PAGE).read_text()
    assert "## share-it" in page and "### NeMo Automodel (main at abc123456)" in page
    assert "| family | 1.0 | 2.0 | main |" in page
    for row in (
        "| f | cpu | cpu | code |",
        "| g |  | upgrade, cpu |  |",
        "| h | code | refused | refused |",
        "| u | applicable |  |  |",
        "| x |  |  | unproven |",
    ):
        assert f"\n{row}\n" in page


def test_the_reasons_come_with_evidence_and_reports(facts: Path, card: Run) -> None:
    card("page")
    told = lines(facts)
    reports = [f"[cpu_verified](../proof/share-it/automodel-{release}.json): parity" for release in ("1.0", "2.0")]
    assert told["f 1.0 to main"].endswith(
        f"| applicable | `sound`: a \\| b | `f.py:3` | 1.0: {reports[0]}; 2.0: {reports[1]}; main: code_verified |"
    )
    assert told["h 1.0"].endswith("| applicable | `sound`: a \\| b | `h.py:3` | code_verified |")
    assert told["h 2.0 to main"].endswith("| refused | `wrong`: a \\| b | `h.py:3` | - |")


def test_the_page_follows_the_reports(facts: Path, runs: Path, card: Run) -> None:
    card("page")
    assert card("check")[0] == 0
    (facts / "runtime/plan.py").write_text("def plan(n):\n    return n + 2\n")
    card("update")
    assert "| f | code | code | code |" in (facts / PAGE).read_text()
    card("update", report(runs, facts, "abc123456789", cases("f"), backend="nccl", gpu=["H200"]))
    assert "| f | code | code | gpu |" in (facts / PAGE).read_text()


def test_every_processor_that_ran_todays_code_is_shown(facts: Path, runs: Path, card: Run) -> None:
    ours = {"versions": {"torch": "2"}, "cpu": "AMD EPYC 9654", "vector": "AVX512", "blas": "mkl", "hosts": ["a"]}
    given = report(runs, facts, "2.0", environment=ours)
    assert card("update", "--label", "epyc", given)[0] == 0
    both = ["AMD EPYC 9654, AVX512, mkl", "unknown processor"]
    entry = yaml.safe_load((facts / "card.yaml").read_text())["techniques"][0]
    assert entry["processors"] == both and card("check")[0] == 0
    assert f"Today's code ran on {' and on '.join(both)}." in (facts / PAGE).read_text()
    (facts / "card.yaml").write_text((facts / "card.yaml").read_text().replace("EPYC 9654", "EPYC 9999"))
    assert card("check")[1]["error"]["where"] == "card.yaml"
    (facts / "runtime/plan.py").write_text("def plan(n):\n    return n + 2\n")
    card("update")
    assert yaml.safe_load((facts / "card.yaml").read_text())["techniques"][0]["processors"] == []


def test_a_page_written_by_hand_is_found(facts: Path, card: Run) -> None:
    card("page")
    (facts / PAGE).write_text((facts / PAGE).read_text().replace("| h | code |", "| h | cpu |"))
    code, answer = card("check")
    assert code == 1 and answer["error"]["where"] == PAGE


def bridge_pack(pack: Path) -> None:
    text = (pack / "card.yaml").read_text()
    text = text.replace('automodel: ["1.0", "2.0"]', 'automodel: ["1.0", "2.0"]\n  megatron-bridge: ["0.6.2", "9.9"]')
    (pack / "card.yaml").write_text(text)


def release(folder: Path, version: str) -> Path:
    write(folder / "megatron/bridge")
    major, minor, patch = version.split(".")
    info = f"MAJOR = {major}\nMINOR = {minor}\nPATCH = {patch}\nPRE_RELEASE = ''\n"
    (folder / "megatron/bridge/package_info.py").write_text(info)
    return folder


def test_facts_are_what_scan_and_plan_say(pack: Path, tmp_path: Path, card: Run) -> None:
    bridge_pack(pack)
    releases = tmp_path / "releases"
    release(releases / "bridge-0.6.2", "0.6.2")
    release(releases / "bridge-0.1.0", "0.1.0")  # not on the card
    checkout = release(tmp_path / "checkout", "0.7.0")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    before = {path: path.stat().st_mtime_ns for path in releases.rglob("*")}
    code, answer = card("page", "--releases", releases, "--checkout", checkout)
    assert code == 0 and {path: path.stat().st_mtime_ns for path in releases.rglob("*")} == before
    assert [(row["release"], row["scanned"]) for row in answer["rows"]] == [("0.6.2", True), ("main", True)]
    told = json.loads((pack / FACTS).read_text())["megatron-bridge"]
    row = next(row for row in told["0.6.2"]["rows"] if row["family"] == "ministral3")
    assert row["outcome"] == "applicable" and row["planned"] and row["evidence"].startswith("megatron/bridge/models/")
    assert told["0.6.2"]["commit"] is None and len(told["main"]["commit"]) == 40
    # what was not scanned again stays
    assert card("page", "--releases", releases)[1]["rows"][1] == {**answer["rows"][1], "scanned": False}


def test_a_plan_that_fails_is_no_proof(pack: Path, tmp_path: Path, card: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from skillgen.engine import plan as engine
    from skillgen.kernel.errors import AnchorDrift

    def drifted(*_: object, **__: object) -> None:
        raise AnchorDrift("an anchor", where="a.py")

    monkeypatch.setattr(engine, "plan_changes", drifted)
    bridge_pack(pack)
    release(tmp_path / "releases/bridge-0.6.2", "0.6.2")
    card("page", "--releases", tmp_path / "releases")
    rows = json.loads((pack / FACTS).read_text())["megatron-bridge"]["0.6.2"]["rows"]
    assert next(row for row in rows if row["family"] == "ministral3")["planned"] is False


def test_a_tree_that_is_no_checkout_is_not_main(pack: Path, tmp_path: Path, card: Run) -> None:
    bridge_pack(pack)
    tree = release(tmp_path / "tree", "0.6.2")
    assert card("page", "--checkout", tree)[1]["error"]["code"] == "no-checkout"
    assert card("page", "--releases", tmp_path / "none")[1]["error"]["code"] == "no-releases"


def test_a_patched_tree_has_no_facts(pack: Path, tmp_path: Path, card: Run) -> None:
    from skillgen.cli.parser import main

    bridge_pack(pack)
    tree = release(tmp_path / "releases/bridge-0.6.2", "0.6.2")
    assert main(["apply", "vision-dp-over-cp", str(tree), "--family", "ministral3", "--no-lint"]) == 0
    assert card("page", "--releases", tree.parent)[1]["error"]["code"] == "patched-already"


def test_missing_releases_are_fetched(pack: Path, tmp_path: Path, card: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bridge_pack(pack)
    asked = []
    monkeypatch.setattr("skillgen.fetching.fetch.fetch", lambda spec, folder: asked.append((spec, folder.name)))
    release(tmp_path / "releases/bridge-0.6.2", "0.6.2")
    assert card("page", "--fetch", "--releases", tmp_path / "releases")[0] == 0
    assert asked == [
        ("pypi:nemo-automodel==1.0", "automodel-1.0"),
        ("pypi:nemo-automodel==2.0", "automodel-2.0"),
        ("pypi:megatron-bridge==9.9", "bridge-9.9"),
    ]
    assert card("page", "--fetch")[1]["error"]["code"] == "usage"
