"""The hash of a technique's code covers all of it, wherever the pack is installed, and a report carries it."""

from __future__ import annotations

import ast
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from skillgen.cli.parser import main
from skillgen.engine import registry
from skillgen.report import code_hash
from skillgen.report import record as report
from skillgen.report.code_hash import Hashes
from tests.cli.trees import MODEL, write
from tests.releases import original

ROOT = Path(__file__).parents[2]
CARD = yaml.safe_load((ROOT / "card.yaml").read_text())
TECHNIQUES = [entry["name"] for entry in CARD["techniques"]]
T = "vision-dp-over-cp"


def runs_through(technique: str) -> set[str]:
    """The files of ours that a fresh interpreter has loaded once the technique and all of its suite are imported."""
    name = technique.replace("-", "_")
    code = f"""
import importlib, pkgutil, sys
for top in ("skillgen.techniques.{name}", "skillgen.evals.{name}"):
    package = importlib.import_module(top)
    for module in pkgutil.walk_packages(package.__path__, top + "."):
        importlib.import_module(module.name)
print("LOADED", *(m.__file__ for n, m in sys.modules.items() if n.startswith("skillgen.") and m.__file__))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = map(Path, done.stdout.split("LOADED ")[1].split())
    return {path.resolve().relative_to(ROOT).as_posix() for path in loaded}


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_no_code_of_a_technique_is_left_out(technique: str) -> None:
    hashes = Hashes(technique)
    covered = hashes.shared_files.union(*map(hashes.files, hashes.families))
    left = {name for name in runs_through(technique) - covered if len(ast.parse((ROOT / name).read_bytes()).body) > 1}
    products = {name for name in left if name.startswith("generators/products/")}
    assert left - products == set()
    targets = next(entry["targets"] for entry in CARD["techniques"] if entry["name"] == technique)
    named = {place["product"].replace("-", "_") for place in targets}
    assert named == {Path(name).stem for name in covered if name.startswith("generators/products/")} - {"__init__"}


def test_what_every_run_goes_through_is_there_and_what_shows_it_is_left_out() -> None:
    for technique in TECHNIQUES:
        files = Hashes(technique).shared_files
        assert set(code_hash.EVERY) <= files
        told = ("cli", "mcp", "report", "card", "skillpack", "fetching", "ledger", "launch/slurm", "launch/ab")
        assert not [name for name in files if name.startswith(tuple(f"generators/{place}" for place in told))]


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_what_a_patch_of_a_family_brings_along_is_covered(technique: str) -> None:
    """Every template that is read, and every file of the runtime, while the families of a release are planned."""
    place = next(entry for entry in CARD["techniques"] if entry["name"] == technique)["targets"][-1]
    release = [name for name in place["releases"] if name != "main"]
    if not release:  # the newest families are on main alone
        place = next(entry for entry in CARD["techniques"] if entry["name"] == technique)["targets"][-2]
        release = place["releases"]
    folder = original(f"{place['product'].removeprefix('megatron-')}-{release[-1]}")
    hashes = Hashes(technique)
    for family, read in opened(technique, folder, place["families"]).items():
        files = hashes.files(family)
        assert read <= files, family
        assert read or not [name for name in files if name.startswith("templates/") and "/tests/" not in name]


def opened(technique: str, folder: Path, families: list[str]) -> dict[str, set[str]]:
    """By family, the pack's templates and runtime that a fresh interpreter opens to plan it."""
    code = f"""
import json, sys
read = set()
sys.addaudithook(lambda event, args: read.add(str(args[0])) if event == "open" else None)
from skillgen.engine.plan import plan_changes
from skillgen.kernel.target import discover
told = {{}}
for family in {families!r}:
    read.clear()
    plan_changes(discover({str(folder)!r}), {technique!r}, [family], {{}}, lint=False)
    told[family] = sorted(read)
print("READ", json.dumps(told))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {
        family: {
            name
            for path in map(Path, paths)
            if path.resolve().is_relative_to(ROOT)
            and (name := path.resolve().relative_to(ROOT).as_posix()).startswith(("templates/", "runtime/"))
            and name.endswith((".j2", ".py"))
        }
        for family, paths in json.loads(done.stdout.split("READ ")[1]).items()
    }


def test_the_card_speaks_of_every_technique() -> None:
    assert registry.names() == TECHNIQUES


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_an_installation_has_the_hashes_of_its_checkout(technique: str) -> None:
    installed, checkout = Hashes(technique), Hashes(technique, ROOT)
    assert installed.shared == checkout.shared and installed.families == checkout.families
    assert {family: installed.of(family) for family in installed.families} == {
        family: checkout.of(family) for family in checkout.families
    }
    assert len({Hashes(name).shared for name in TECHNIQUES}) == len(TECHNIQUES)


def test_a_comment_is_no_content_but_a_string_is() -> None:
    def content(text: str) -> str:
        return code_hash.content(text, python=True)

    plain = content("x = 1\n\ny = '# two'\n")
    assert content("# why\nx = 1  # how\r\n\r\n\r\ny = '# two'   \r\n") == plain == "x = 1\ny = '# two'"
    assert content("x = 1\ny = '# three'\n") != plain
    assert content("if x:\n    y = 1\n") != content("if x:\n    pass\ny = 1\n")
    assert content('x = """\n# a\n"""\n') != content('x = """\n# b\n"""\n')
    assert code_hash.content("# a\n", python=False) == "# a"


def patched(root: Path) -> Path:
    write(root / "megatron/bridge")
    assert main(["apply", T, str(root), "--family", "ministral3", "--no-lint"]) == 0
    return root


def test_a_report_says_which_code_made_it(tmp_path: Path) -> None:
    tree = patched(tmp_path / "tree")
    base = {"technique": T, "target": str(tree), "command": "", "nproc": 2, "backend": "gloo", "seconds": 1.0}
    base |= {"rows": [], "stand_ins": [], "environment": {}}
    told = report.finish({**base, "mutate": None})["code"]
    hashes = Hashes(T)
    assert told == {"sha256": hashes.shared, "families": {"ministral3": hashes.of("ministral3")}, "patch": "current"}
    assert "code" not in report.finish({**base, "mutate": "no-reduce"})


def test_a_patch_by_other_code_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = patched(tmp_path / "tree")
    vision = importlib.import_module("skillgen.techniques.vision_dp_over_cp.technique")
    with monkeypatch.context() as patch:
        patch.setattr(vision, "FIELD", vision.FIELD.replace("Encode each", "Encode every"))
        assert code_hash.patch_state(T, tree).startswith("differs in megatron/bridge/models/ministral3/")
    assert code_hash.patch_state(T, tree) == "current"


def test_an_edited_patch_is_not_current(tmp_path: Path) -> None:
    tree = patched(tmp_path / "tree")
    model = tree / "megatron/bridge" / MODEL
    model.write_text(model.read_text().replace("get_image_features = self._shard", "other = self._shard"))
    assert code_hash.patch_state(T, tree) != "current"


def test_a_patch_without_a_receipt_is_of_unknown_code(tmp_path: Path) -> None:
    tree = patched(tmp_path / "tree")
    shutil.rmtree(tree / ".skillgen")
    assert code_hash.patch_state(T, tree) == "no receipt of the patch"
    assert code_hash.patch_state(T, tmp_path).startswith("not-a-target")
