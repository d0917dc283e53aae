"""The hash of a technique's code covers all of it, wherever the pack is installed, and a report carries it."""

from __future__ import annotations

import ast
import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from skillgen.cli.parser import main
from skillgen.engine import registry
from skillgen.engine.suites import suite_of
from skillgen.report import code_hash
from skillgen.report import record as report
from tests.cli.trees import MODEL, write

ROOT = Path(__file__).parents[2]
CARD = yaml.safe_load((ROOT / "card.yaml").read_text())
TECHNIQUES = {entry["name"]: entry for entry in CARD["techniques"]}
PACKAGES = {"skillgen.runtime": "runtime", "skillgen.evals": "evals", "skillgen": "generators"}
# What a patch or a run goes through without deciding what is written or judged.
MACHINERY = (
    "ledger/",
    "errors.py",
    "target.py",
    "collector.py",
    "registry.py",
    "checks.py",
    "paths.py",
    "refusals.py",
)
MACHINERY = (
    *(f"generators/{name}" for name in MACHINERY),
    "generators/__init__.py",
    "generators/launch/launch.py",
    "generators/launch/environment.py",
)
T = "vision-dp-over-cp"


def module_file(module: str) -> Path | None:
    for package, folder in PACKAGES.items():
        if module == package or module.startswith(package + "."):
            base = ROOT.joinpath(folder, *module.removeprefix(package).split(".")[1:])
            return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)
    return None


def imported(path: Path) -> Iterator[str]:
    """Every module of ours that a file names in an import."""
    folder = next(package for package, name in PACKAGES.items() if name == path.relative_to(ROOT).parts[0])
    parts = [folder, *path.relative_to(ROOT).with_suffix("").parts[1:]]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: -node.level]) + "." if node.level else ""
            module = (base + (node.module or "")).rstrip(".")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def used(technique: str) -> set[str]:
    """Every file of ours that a technique's generator and suite import, directly or not."""
    name, suite = technique.replace("-", "_"), suite_of(technique)
    families = Path(module_file(suite.FAMILIES) or "")
    todo = [
        ROOT / f"generators/techniques/{name}.py",
        ROOT / f"evals/{name}.py",
        families,
        ROOT / "evals/kernel/worker.py",
    ]
    todo += families.parent.glob("*.py") if families.name == "__init__.py" else []
    for module in getattr(suite, "MODULES", {}).values():
        places = (f"{suite.FAMILIES.rpartition('.')[0]}.{module}", f"skillgen.evals.{module}")
        todo += [*filter(None, map(module_file, places))][:1]
    found: set[str] = set()
    while todo:
        path = todo.pop()
        if (shown := path.relative_to(ROOT).as_posix()) not in found and not shown.startswith(MACHINERY):
            found.add(shown)
            todo += filter(None, map(module_file, imported(path)))
    return found


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_no_code_of_a_technique_is_left_out(technique: str) -> None:
    listed = code_hash.files([*CARD["code"], *TECHNIQUES[technique]["code"]], ROOT)
    found = {name for name in used(technique) if len(ast.parse((ROOT / name).read_bytes()).body) > 1}
    assert len(found) > 15 and found - listed.keys() == set()
    folder = f"templates/{technique.replace('-', '_')}"
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()}
    assert templates and templates <= listed.keys()
    vendored = {path.relative_to(ROOT).as_posix() for path in (ROOT / "runtime").glob("*.py")}
    assert vendored <= listed.keys() or not vendored & listed.keys()


def test_the_card_speaks_of_every_technique() -> None:
    assert list(TECHNIQUES) == registry.names()


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_an_installation_has_the_hash_of_its_checkout(technique: str) -> None:
    assert code_hash.code_hash(technique) == code_hash.code_hash(technique, ROOT)
    assert len({code_hash.code_hash(name) for name in TECHNIQUES}) == len(TECHNIQUES)


def test_a_comment_is_no_content_but_a_string_is(tmp_path: Path) -> None:
    path = tmp_path / "a.py"

    def content(text: str) -> str:
        path.write_text(text)
        return code_hash.content(path)

    plain = content("x = 1\n\ny = '# two'\n")
    assert content("# why\nx = 1  # how\r\n\r\n\r\ny = '# two'   \r\n") == plain == "x = 1\ny = '# two'"
    assert content("x = 1\ny = '# three'\n") != plain
    assert content("if x:\n    y = 1\n") != content("if x:\n    pass\ny = 1\n")
    assert content('x = """\n# a\n"""\n') != content('x = """\n# b\n"""\n')


def patched(root: Path) -> Path:
    write(root / "megatron/bridge")
    assert main(["apply", T, str(root), "--family", "ministral3", "--no-lint"]) == 0
    return root


def test_a_report_says_which_code_made_it(tmp_path: Path) -> None:
    tree = patched(tmp_path / "tree")
    base = {"technique": T, "target": str(tree), "command": "", "nproc": 2, "backend": "gloo", "seconds": 1.0}
    base |= {"rows": [], "stand_ins": [], "environment": {}}
    told = report.finish({**base, "mutate": None})["code"]
    assert told == {"sha256": code_hash.code_hash(T), "patch": "current"}
    assert "code" not in report.finish({**base, "mutate": "no-reduce"})


def test_a_patch_by_other_code_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = patched(tmp_path / "tree")
    vision = importlib.import_module("skillgen.techniques.vision_dp_over_cp")
    with monkeypatch.context() as patch:
        patch.setattr(vision, "FIELD", vision.FIELD.replace("Takes effect", "Has an effect"))
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
