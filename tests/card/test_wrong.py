"""Every way in which a card can say other than its reports is found, with the claim and the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.card.packs import Run, cases, evidence, levels, report
from tests.report.records import row

CARD = "card.yaml"
ONE, TWO = "proof/share-it/automodel-1.0.json", "proof/share-it/automodel-2.0.json"


def swap(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(pack: Path) -> None:
        text = (pack / name).read_text()
        assert old in text
        (pack / name).write_text(text.replace(old, new, 1))

    return change


def gone(name: str) -> Callable[[Path], None]:
    return lambda pack: (pack / name).unlink()


def added(name: str) -> Callable[[Path], None]:
    def change(pack: Path) -> None:
        (pack / name).write_text("NEW = 1\n")

    return change


FAMILIES = "generators/techniques/share_it/families"
GUIDE = "skills/guide/config/card.yaml"  # of a skill without a technique
LISTED = f"        evidence:\n          - {ONE}\n          - {TWO}\n"
WRONG: dict[str, tuple[Callable[[Path], None], str, str, str]] = {
    "a level raised by hand": (swap(CARD, "level: unproven", "level: cpu_verified"), "cost", CARD, "say no more"),
    "a level raised further": (swap(CARD, "cpu_verified", "gpu_verified"), "parity", ONE, "no more than cpu_verified"),
    "a level lowered by hand": (swap(CARD, "cpu_verified", "documented"), "parity", ONE, "reports say cpu_verified"),
    "evidence that is not there": (swap(CARD, ONE, "proof/no.json"), "parity", "proof/no.json", "is missing"),
    "evidence left out": (swap(CARD, f"          - {ONE}\n", ""), "parity", CARD, "its evidence is"),
    "a deleted report": (gone(TWO), "parity", TWO, "evidence is missing"),
    "all evidence taken away": (swap(CARD, LISTED, "        evidence: []\n"), "parity", CARD, "and it names none"),
    "another verdict in a report": (swap(TWO, '"seconds": 3.0', '"seconds": 2.0'), "", TWO, "is not as"),
    "a better figure in a report": (swap(TWO, "1.23e-07", "1.23e-08"), "", TWO, "is not as"),
    "a damaged report": (swap(TWO, '"rows": [', '"rows": '), "", TWO, "is not as"),
    "a report of another technique's": (
        swap(TWO, '"technique": "share-it"', '"technique": "other"'),
        "",
        TWO,
        "is not as",
    ),
    "a changed line of code": (swap("runtime/plan.py", "n + 1", "n + 2"), "parity", ONE, f"{ONE} is of other code"),
    "a changed template": (swap("templates/share_it/site.j2", "call", "other"), "parity", ONE, "is of other code"),
    "changed common code": (swap("generators/edits.py", "1", "2"), "parity", ONE, "is of other code"),
    "a changed family": (swap(f"{FAMILIES}/g.py", "1", "2"), "parity", ONE, f"{ONE} is of other code for g"),
    "a changed template of a family": (
        swap("templates/share_it/sites/g.py.j2", "of", "by"),
        "parity",
        ONE,
        "code for g",
    ),
    "what a family's eval imports": (swap("evals/tools.py", "1", "2"), "parity", ONE, "is of other code for g"),
    "a file more in a technique's folder": (added("evals/share_it/cases.py"), "parity", ONE, "is of other code for f"),
    "a skill's card": (
        swap("skills/share-it/config/card.yaml", "cpu_verified", "gpu_verified"),
        "",
        "skills/share-it/config/card.yaml",
        "is not what",
    ),
    "a level of a skill that no eval judges": (
        swap(GUIDE, "level: unproven\n    evidence: []", f"level: cpu_verified\n    evidence: [{ONE}]"),
        "whole",
        GUIDE,
        "no eval judges guide",
    ),
    "a level of it that code alone shows": (
        swap(GUIDE, "level: unproven", "level: code_verified"),
        "whole",
        GUIDE,
        "no eval judges guide",
    ),
    "a page that is not there": (
        swap(GUIDE, "level: unproven\n    evidence: []", "level: documented\n    evidence: [docs/no.md]"),
        "whole",
        GUIDE,
        "evidence is missing: docs/no.md",
    ),
    "its status alone": (swap(GUIDE, "status: unproven", "status: cpu_verified"), "", GUIDE, "status is unproven"),
    "where it ran": (swap(GUIDE, "validated_on: []", "validated_on: [a]"), "", GUIDE, "validated_on is empty"),
    "what it rests on": (swap(GUIDE, "evidence: []", f"evidence: [{ONE}]"), "", GUIDE, "no claim rests on"),
    "a claim without a level": (swap(GUIDE, "    level: unproven\n", ""), "whole", GUIDE, "no eval judges"),
    "no YAML": (swap(GUIDE, "title: guide", "title: ["), "", GUIDE, "while parsing"),
    "documented nowhere": (
        swap(CARD, "It is said.\n        level: unproven", "It is said.\n        level: documented"),
        "talk",
        CARD,
        "names no page",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_found(name: str, proven: Path, card: Run) -> None:
    change, claim, file, why = WRONG[name]
    change(proven)
    code, answer = card("check")
    wrong = [row for row in answer["rows"] if row["state"] == "problem"]
    assert code == 1 and answer["error"]["code"] == "card-untrue" and answer["error"]["where"] == file
    assert [(row["claim"], row["file"]) for row in wrong][:1] == [(claim, file)] and why in wrong[0]["why"]
    assert answer["error"]["hint"].startswith("delete") == (file == TWO and not claim)


@pytest.mark.parametrize(
    "change",
    [
        swap("runtime/plan.py", "  # one more", "  # two less"),
        swap("runtime/plan.py", "\n\n\ndef", "\n\ndef"),
        lambda pack: (pack / "runtime/plan.py").write_bytes(
            (pack / "runtime/plan.py").read_bytes().replace(b"\n", b"\r\n")
        ),
        swap("evals/other/suite.py", "1", "2"),
        added(f"{FAMILIES}/h.py"),
        swap("generators/cli/shown.py", "1", "2"),
        swap("templates/share_it/pull_request.md.j2", "it", "all"),
        swap("skills/share-it/config/card.yaml", "name: a", "name: b"),
    ],
    ids=[
        "a comment",
        "a blank line",
        "line endings",
        "another technique's code",
        "a new family",
        "what shows it",
        "what a pull request says",
        "the rest of a skill's card",
    ],
)
def test_what_does_not_count_changes_nothing(change: Callable[[Path], None], proven: Path, card: Run) -> None:
    change(proven)
    assert card("check")[0] == 0


def test_changed_code_lowers_a_claim_until_the_next_run(proven: Path, runs: Path, card: Run) -> None:
    swap("runtime/plan.py", "n + 1", "n + 2")(proven)
    assert card("update")[0] == 0 and levels(proven)["parity"] == "code_verified"
    assert evidence(proven, "parity") == [ONE, TWO] and card("check")[0] == 0
    card("update", report(runs, proven, "1.0"))
    assert levels(proven)["parity"] == "code_verified"
    card("update", report(runs, proven, "2.0"))
    assert levels(proven)["parity"] == "cpu_verified" and card("check")[0] == 0


def test_code_that_comes_back_is_proven_again(proven: Path, card: Run) -> None:
    swap("runtime/plan.py", "n + 1", "n + 2")(proven)
    card("update")
    swap("runtime/plan.py", "n + 2", "n + 1")(proven)
    assert card("update")[0] == 0 and levels(proven)["parity"] == "cpu_verified"


def test_update_corrects_what_was_written_by_hand(proven: Path, card: Run) -> None:
    before = (proven / CARD).read_text()
    swap(CARD, "level: unproven", "level: cluster_verified")(proven)
    assert card("update")[0] == 0 and (proven / CARD).read_text() == before


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "mutated": ({"mutate": "no-reduce"}, "report-mutated"),
    "failed": ({"rows": [*cases("f"), row("failed", family="g")]}, "report-failed"),
    "nothing passed": ({"rows": [row("skipped")]}, "report-failed"),
    "of other code": ({"code": {"families": {"f": "0" * 64, "g": "0" * 64}}}, "report-of-other-code"),
    "of code that nobody knows": ({"code": {"families": {}}}, "report-of-other-code"),
    "of an older patch": ({"code": {"patch": "differs in model.py"}}, "patch-of-other-code"),
    "NCCL without a GPU": ({"backend": "nccl"}, "unclear-hardware"),
    "of a technique that the card lacks": ({"technique": "unheard-of"}, "unknown-technique"),
    "edited": ({"ok": False}, "report-damaged"),
    "with another verdict": ({"verdict": "PASS: 9 passed"}, "report-damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_such_a_report_is_refused_and_nothing_is_written(name: str, pack: Path, runs: Path, card: Run) -> None:
    changes, code = REFUSED[name]
    good, bad = report(runs, pack, "1.0"), report(runs, pack, "2.0", **changes)
    before = (pack / CARD).read_text()
    assert card("update", good, bad)[1]["error"]["code"] == code
    assert (pack / CARD).read_text() == before and not (pack / "proof").exists()


def test_a_report_without_a_word_on_its_code_is_refused(pack: Path, runs: Path, card: Run) -> None:
    path = Path(report(runs, pack)) / "report.json"
    told = json.loads(path.read_text())
    del told["code"]
    path.write_text(json.dumps(told))
    assert card("update", path.parent)[1]["error"]["code"] == "report-of-other-code"


def origin(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Put a value into a field of a report; none takes the field out."""
    *outer, last = field.split(".")

    def change(told: dict[str, Any]) -> None:
        for name in outer:
            told = told[name]
        told.pop(last)
        if value is not None:
            told[last] = value

    return change


ORIGINS: dict[str, tuple[str, Any, str]] = {
    "patched": ("patched", {}, "report-of-unknown-origin"),
    "target": ("target", " ", "report-of-unknown-origin"),
    "pack_version": ("pack_version", "", "report-of-unknown-origin"),
    "environment": ("environment", {}, "report-of-unknown-origin"),
    "environment.versions": ("environment.versions", None, "report-of-unknown-origin"),
    "environment.hosts": ("environment.hosts", [], "report-of-unknown-origin"),
    "families": ("families", [], "report-of-unknown-origin"),
    "patched.product": ("patched.product", "../../other", "report-of-unknown-origin"),
    "patched.version": ("patched.version", "../../../2.0", "report-of-unknown-origin"),
    "patched.kind": ("patched.kind", "", "report-of-unknown-origin"),
    "patched.families": ("patched.families", {}, "report-of-unknown-origin"),
    "'patched'": ("patched", None, "report-damaged"),
    "'target'": ("target", None, "report-damaged"),
    "'environment'": ("environment", None, "report-damaged"),
    "'pack_version'": ("pack_version", None, "report-damaged"),
}


@pytest.mark.parametrize("said", ORIGINS)
def test_a_report_that_leaves_its_origin_open_is_refused(said: str, pack: Path, runs: Path, card: Run) -> None:
    field, value, code = ORIGINS[said]
    path = Path(report(runs, pack)) / "report.json"
    told = json.loads(path.read_text())
    origin(field, value)(told)
    path.write_text(json.dumps(told))
    before = sorted(pack.parent.rglob("*"))
    error = card("update", path.parent)[1]["error"]
    assert error["code"] == code and f" {said} " in f" {error['message']} "
    assert sorted(pack.parent.rglob("*")) == before


def test_a_checkout_without_its_commit_is_refused(pack: Path, runs: Path, card: Run) -> None:
    path = Path(report(runs, pack, "abc123456789")) / "report.json"
    path.write_text(path.read_text().replace('"abc123456789"', "null"))
    assert "its patched.commit" in card("update", path.parent)[1]["error"]["message"]


BROKEN = {
    "a level of no list": ("level: unproven", "level: tested", "a level is one of"),
    "kinds and claims": ("{claims: [parity], ", "{kinds: [parity], claims: [parity], ", "with either kinds or claims"),
    "a claim of claims of claims": ("{claims: [parity], ", "{claims: [main], ", "no claim with cases of its own"),
    "a release of no list": ('{automodel: ["2.0"]}', '{automodel: ["3.0"]}', "automodel 3.0 is not among"),
    "one id twice": ("id: cost", "id: parity", "two claims have one id"),
    "no statement": ("statement: Less is done.", "remark: Less.", "claims[1].statement is missing"),
    "no YAML": ("title: mini", "title: [", "while parsing"),
    "a day that no month has": ("title: mini", "title: 2026-13-45", "month must be"),
    "a value nested without end": ("title: mini", "title: " + "[" * 5000, "nested too deeply"),
    "a reference": ("title: mini", "title: &a mini\nagain: *a", "a reference (*) in line 2"),
    "a skill elsewhere": ("skill: skills/other", "skill: ../other", "is no folder of the pack"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_card_of_another_form_is_refused(name: str, pack: Path, card: Run) -> None:
    old, new, why = BROKEN[name]
    swap(CARD, old, new)(pack)
    code, answer = card("check")
    assert code == 3 and answer["error"]["code"] == "card-damaged" and why in answer["error"]["message"]


def test_only_a_checkout_has_a_card_to_fill(tmp_path: Path, card: Run) -> None:
    code, answer = card("check", "--pack", tmp_path / "nowhere")
    assert code == 2 and answer["error"]["code"] == "not-a-checkout"
