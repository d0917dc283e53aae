"""A family, a technique and a product are added in a copy of the checkout; CONTRIBUTING.md says all that it takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillgen.card.file import dump
from skillgen.report.code_hash import Hashes
from tests.cli.trees import FILES
from tests.releases import original

ROOT = Path(__file__).parents[1]
COPIED = ("generators", "runtime", "evals", "templates", "skills", "tests", "docs", "proof", "bench")
BRIDGE, AUTOMODEL = "vision-dp-over-cp", "blockdiag-gqa"  # whose files the toys are made from
FAMILY, TECHNIQUE, PRODUCT = "toy_vl", "toy-gqa", "toy-trainer"
Command = Callable[..., dict[str, Any]]


def as_family(text: str) -> str:
    """What is said of Ministral 3, said of the toy, which no release has."""
    text = text.replace("ministral3", FAMILY).replace("Ministral3", "ToyVl").replace("Ministral 3", "Toy VL")
    return re.sub(r"^    seen=\{[^}]*\},\n", "", text, flags=re.MULTILINE)


def as_technique(text: str) -> str:
    return text.replace("blockdiag_gqa", "toy_gqa").replace(AUTOMODEL, TECHNIQUE)


def as_product(text: str) -> str:
    text = text.replace('name="automodel"', f'name="{PRODUCT}"').replace("nemo-automodel", PRODUCT)
    return text.replace("nemo_automodel", "toy_trainer").replace("NeMo Automodel", "Toy Trainer")


def retold(root: Path, folders: list[str], change: Callable[[str], str], only: str = "") -> list[Path]:
    """Files of the checkout once more, under names and with texts that tell of the toy."""
    made = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and only in path.name:
                new = root / change(path.relative_to(ROOT).as_posix())
                new.parent.mkdir(parents=True, exist_ok=True)
                new.write_text(change(path.read_text()))
                made.append(new)
    return made


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout with all three toys, and its packages as an import finds them."""
    root = tmp_path_factory.mktemp("copy") / "checkout"
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, root)
    packages = root / ".cache/packages/skillgen"
    packages.mkdir(parents=True)
    for path in [*(root / "generators").iterdir(), root / "runtime", root / "evals"]:
        (packages / path.name).symlink_to(path)
    owned = ["generators/techniques", "templates", "evals"]
    assert len(retold(root, [f"{top}/vision_dp_over_cp" for top in owned], as_family, only="ministral3")) == 4
    assert len(retold(root, [f"{top}/blockdiag_gqa" for top in [*owned, "tests"]], as_technique)) > 5
    assert retold(root, [f"skills/{AUTOMODEL}"], as_technique)
    for skill in (AUTOMODEL, TECHNIQUE, "vision-frame-sharding"):  # neighbours: of one product
        near = TECHNIQUE if skill != TECHNIQUE else AUTOMODEL
        path = root / "skills" / skill / "evals/evals.json"
        told = json.loads(path.read_text())
        asked = {"id": len(told["evals"]) + 1, "prompt": f"Let {near} do this.", "expected_skill": near}
        told["evals"].append({**told["evals"][-1], **asked})
        path.write_text(json.dumps(told, indent=2))
    product = root / "generators/products/toy_trainer.py"
    product.write_text(as_product((ROOT / "generators/products/automodel.py").read_text()))
    card = yaml.safe_load((root / "card.yaml").read_text())
    entry = next(entry for entry in card["techniques"] if entry["name"] == AUTOMODEL)
    claims = [{**claim, "level": "unproven", "evidence": []} for claim in entry["claims"]]
    targets = [{**entry["targets"][0], "releases": ["0.7.0"]}]
    toy = {**entry, "name": TECHNIQUE, "targets": targets, "skill": f"skills/{TECHNIQUE}", "claims": claims}
    card["techniques"] = sorted([*card["techniques"], toy], key=lambda entry: str(entry["name"]))
    (root / "card.yaml").write_text(dump(card))
    runs = root / "proof/runs.yaml"
    own = [line for line in runs.read_text().splitlines() if AUTOMODEL in line]
    runs.write_text(runs.read_text().rstrip() + "\n" + "".join(f"{as_technique(line)}\n" for line in own))
    return root


@pytest.fixture(scope="module")
def run(copy: Path) -> Command:
    """A command of the copy's own `skillgen`."""

    def command(*words: str | Path, exit_code: int = 0) -> dict[str, Any]:
        done = python(copy, "-m", "skillgen", *map(str, words), "--json")
        assert done.returncode == exit_code, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return command


@pytest.fixture(scope="module")
def made(copy: Path, run: Command, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What `make compatibility` makes of the release that the toy patches, and the card."""
    releases = tmp_path_factory.mktemp("releases")
    (releases / "automodel-0.7.0").symlink_to(original("automodel-0.7.0"))
    run("card", "update")
    assert any(row["scanned"] for row in run("card", "page", "--releases", releases)["rows"])


def python(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join(map(str, (copy / ".cache/packages", copy)))
    environment = os.environ | {"PYTHONPATH": places}
    return subprocess.run([sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True)


def toy_tree(folder: Path) -> Path:
    """A miniature Megatron-Bridge with the toy family."""
    for name, text in FILES.items():
        path = folder / "megatron/bridge" / as_family(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_family(text))
    return folder


def test_a_family_is_scanned_planned_applied_and_reverted(run: Command, tmp_path: Path) -> None:
    tree = toy_tree(tmp_path / "bridge")
    row = next(row for row in run("scan", tree)["rows"] if row["family"] == FAMILY)
    assert (row["outcome"], row["plannable"], row["technique"]) == ("applicable", True, BRIDGE)
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert run("plan", BRIDGE, tree, "--family", FAMILY)["ok"]
    assert run("apply", BRIDGE, tree, "--family", FAMILY, "--no-lint")["rows"][0]["outcome"] == "applied"
    assert run("revert", BRIDGE, tree)["ok"]
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before


def test_a_technique_is_listed_scanned_and_planned(run: Command) -> None:
    tree = original("automodel-0.7.0")
    assert TECHNIQUE in {row["technique"] for row in run("list")["rows"]}
    assert any(row["technique"] == TECHNIQUE and row["plannable"] for row in run("scan", tree)["rows"])
    assert run("plan", TECHNIQUE, tree, "--no-lint")["rows"]


def test_a_product_is_found(run: Command, tmp_path: Path) -> None:
    (tmp_path / "toy_trainer").mkdir()
    (tmp_path / "toy_trainer/__init__.py").touch()
    assert run("scan", tmp_path)["rows"] == []
    assert "not-a-target" in str(run("scan", tmp_path / "toy_trainer/none", exit_code=2)["error"])


def test_no_claim_of_another_goes_stale(copy: Path) -> None:
    for technique in sorted(path.name for path in (ROOT / "generators/techniques").iterdir() if path.is_dir()):
        if technique not in ("shared", "__pycache__"):
            before, after = (Hashes(technique.replace("_", "-"), root) for root in (ROOT, copy))
            assert before.shared == after.shared, before.shared_files ^ after.shared_files
            assert {family: after.of(family) for family in before.families} == {
                family: before.of(family) for family in before.families
            }
    assert FAMILY in Hashes(BRIDGE, copy).families
    assert Hashes(TECHNIQUE, copy).shared != Hashes(AUTOMODEL, copy).shared


@pytest.mark.evals
def test_the_card_takes_the_technique_in(copy: Path, run: Command, made: None) -> None:
    levels = {(row["technique"], row["claim"]): row["level"] for row in run("card", "check")["rows"]}
    known = yaml.safe_load((ROOT / "card.yaml").read_text())["techniques"]
    for entry in known:
        assert {claim["id"]: claim["level"] for claim in entry["claims"]} == {
            claim["id"]: levels[entry["name"], claim["id"]] for claim in entry["claims"]
        }
    assert levels[TECHNIQUE, "parity"] == "unproven"
    assert f"## {TECHNIQUE}\n" in (copy / "docs/compatibility.md").read_text()


def test_the_skill_of_the_technique_is_valid(copy: Path, run: Command) -> None:
    run("card", "update")
    assert run("skills", "validate")["ok"]


# Those that look at the house, at all adapters, at all suites and at every release.
CHECKS = (
    "tests/test_layout.py",
    "tests/test_house.py",
    "tests/evals/test_suites.py",
    "tests/vision_dp_over_cp/test_adapters.py",
    "tests/vision_dp_over_cp/test_releases.py",
    "tests/card/test_pack.py",
    "tests/toy_gqa/test_toy_gqa.py",
)


@pytest.mark.evals
def test_the_tests_hold_without_a_change(copy: Path, made: None) -> None:
    done = python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not evals", *CHECKS)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-500:]
    assert " passed" in done.stdout
