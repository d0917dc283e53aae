"""The card of this pack says what its reports say, and its page what the releases at hand do."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillgen.card import facts as card_facts
from skillgen.card import page as card_page
from skillgen.card.evidence import Proof
from skillgen.card.file import RUN, Pack
from skillgen.card.levels import Evidence, parts
from skillgen.cli.parser import main
from skillgen.engine import plan as engine
from skillgen.engine.suites import suite_of
from skillgen.kernel.target import discover

PACK = Pack(Path(__file__).parents[2])
ENTRIES = {entry["name"]: entry for entry in PACK.card["techniques"]}
FACTS = card_facts.load(PACK)
RUNS = yaml.safe_load((PACK.root / "proof/runs.yaml").read_text())
FOLDERS = {"megatron-bridge": "bridge", "automodel": "automodel", "megatron-core": "core"}
CELLS = [(product, release) for product, releases in PACK.card["releases"].items() for release in releases]

each_technique = pytest.mark.parametrize("name", ENTRIES)


def at_hand(product: str, release: str) -> Path:
    folder = Path(os.environ.get("SKILLGEN_RELEASES", "/nowhere")) / f"{FOLDERS[product]}-{release}"
    if not folder.is_dir():
        pytest.skip(f"SKILLGEN_RELEASES holds no {folder.name}")
    return folder


def test_every_claim_says_what_its_reports_say(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["card", "check", "--json"])
    assert code == 0, json.loads(capsys.readouterr().out)["error"]


def test_the_page_is_what_its_facts_make_of_it() -> None:
    assert (PACK.root / card_page.PAGE).read_text() == card_page.render(FACTS, Evidence.of_all(PACK))
    assert {(product, release) for product in FACTS for release in FACTS[product]} >= set(CELLS)
    assert all(FACTS[product]["main"]["commit"].startswith(commit) for product, commit in PACK.card["main"].items())


@pytest.mark.parametrize(("product", "release"), CELLS, ids=lambda value: value)
def test_the_facts_are_those_of_the_release(product: str, release: str) -> None:
    from skillgen.engine.scan import scan

    found = {}
    for row in scan(discover(at_hand(product, release))):
        told = {name: row.as_json()[name] for name in card_facts.FIELDS}
        found[row.technique, row.family] = told | {"evidence": row.evidence[0] if row.evidence else ""}
    known = {
        (row["technique"], row["family"]): {name: row[name] for name in (*card_facts.FIELDS, "evidence")}
        for row in FACTS[product][release]["rows"]
    }
    wrong = sorted(key for key, row in known.items() if found.get(key) != row)
    assert not wrong, f"run `make compatibility`: {product} {release} is otherwise for {wrong}"


@each_technique
def test_what_the_card_calls_patched_can_be(name: str) -> None:
    for target in ENTRIES[name]["targets"]:
        for release in target["releases"]:
            rows = FACTS[target["product"]][release]["rows"]
            planned = {row["family"] for row in rows if row["technique"] == name and row.get("planned")}
            assert set(target["families"]) <= planned, release


@each_technique
def test_every_cpu_claim_has_a_run_that_can_prove_it(name: str) -> None:
    """A run without kinds makes all of them; only one that is slow makes the target's own tests on a checkout."""
    kinds = suite_of(name).KINDS
    made: set[tuple[str, str]] = set()
    for run in (run for run in RUNS["runs"] if run["technique"] == name):
        asked = run.get("kinds", kinds)
        assert "upstream-tests" not in asked or run.get("slow") or not run["release"].endswith("-main")
        made |= {(run["release"], kind) for kind in [*asked, *(["control"] if "families" in run else [])]}
    for claim in ENTRIES[name]["claims"]:
        for part in parts(ENTRIES[name], claim) if claim.get("least", RUN[0]) == RUN[0] else ():
            for product, release, _ in part.cells:
                assert (f"{FOLDERS[product]}-{release}", part.kind) in made, (claim["id"], release, part.kind)


def digests(proof: Proof, tree: Path) -> dict[str, str]:
    """What a report says of the patched code of each family, made from a plan on the release as it is."""
    target = discover(tree)
    options = {"trainable": True} if "-trainable" in proof.place else {}
    planned = engine.plan_changes(target, proof.record["technique"], [], options, lint=False)
    after = {change.path: change.after for change in planned.changes}
    package = target.relative(target.package) + "/"
    found = {}
    for patch in planned.patches:
        total = hashlib.sha256()
        for path in sorted(change.path for change in patch.changes):  # also what an earlier family has brought
            if path.startswith(package) and path.endswith(".py"):
                content = after[path] or b""
                total.update(f"{path}\0{len(content)}\0".encode() + content)
        found[patch.row.family] = total.hexdigest()
    return found


def newest(name: str) -> list[Any]:
    proofs = [proof for proof in Evidence.of(PACK, ENTRIES[name]).proofs if proof.release[0].isdigit()]
    return [pytest.param(proof, id=proof.place) for proof in proofs[-1:]]


@pytest.mark.parametrize("proof", [proof for name in ENTRIES for proof in newest(name)])
def test_the_patch_that_was_run_is_the_one_that_is_made(proof: Proof) -> None:
    """The code that a claim's hash covers is all that shapes a patch."""
    tree = at_hand(proof.product, proof.release)
    now = Evidence.of(PACK, ENTRIES[proof.record["technique"]]).now
    if not all(proof.is_of(now, family) for family in proof.record["patched"]["families"]):
        pytest.skip("the report is of other code, and the card says so")
    assert proof.record["patched"]["families"] == digests(proof, tree)
