"""The versions in a report are those that a tree states; a commit is told only of a checkout of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from skillgen.evals.kernel import harness
from skillgen.launch.environment import version

INFO = """\
import os, subprocess
MAJOR = 0
MINOR = 19
PATCH = 2
PRE_RELEASE = "rc1"
__version__ = "0.19.2rc1+" + subprocess.run(
    ["git", "rev-parse", "--short", "HEAD"], cwd=os.path.dirname(__file__), capture_output=True, text=True
).stdout.strip()
"""


def repository(folder: Path) -> str:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=b"]
    for command in (["init", "-q"], ["commit", "-qm", "c", "--allow-empty"]):
        subprocess.run([*git, *command], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def package(root: Path, folder: str) -> Path:
    place = root / folder
    place.mkdir(parents=True)
    (place / "package_info.py").write_text(INFO)
    (place / "__init__.py").write_text("from .package_info import __version__\n")
    return place


def imported(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for above in ("megatron", name):
        monkeypatch.setitem(sys.modules, above, ModuleType(above))
    spec = importlib.util.spec_from_file_location(name, place / "__init__.py", submodule_search_locations=[str(place)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, f"{name}.package_info", raising=False)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, f"{name}.package_info")
    return module


@pytest.mark.parametrize("own", [False, True], ids=["a wheel within a repository", "a checkout"])
def test_megatron_core_has_the_commit_of_no_other_repository(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = repository(tmp_path)
    place = package(tmp_path / "core", "megatron/core")
    commit = repository(tmp_path / "core") if own else ""
    core = imported(place, "megatron.core", monkeypatch)
    if not own:
        assert core.__version__.partition("+")[2] and around.startswith(core.__version__.partition("+")[2])
    assert version(core) == ("0.19.2rc1+" + commit[:9] if own else "0.19.2rc1")
    assert harness.environment(None, "gloo")["versions"]["transformers"]
    monkeypatch.setattr(harness.TargetHarness, "versions", ("megatron.core",))
    assert harness.environment(None, "gloo")["versions"]["megatron.core"] == version(core)


def test_other_packages_say_it_themselves() -> None:
    module = ModuleType("transformer_engine")
    module.__version__ = "2.5.0+f05f12c"
    assert version(module) == "2.5.0+f05f12c" and version(ModuleType("megatron.core")) is None


@pytest.mark.parametrize("own", [False, True], ids=["a wheel within a repository", "a checkout"])
@pytest.mark.parametrize(
    ("kind", "folder"),
    [(harness.Harness, "src/megatron/bridge"), (harness.Harness, "megatron/bridge")],
    ids=["src", "flat"],
)
def test_a_target_has_the_commit_of_no_other_repository(
    own: bool, kind: type[harness.TargetHarness], folder: str, tmp_path: Path
) -> None:
    repository(tmp_path)
    root = tmp_path / "target"
    package(root, folder)
    commit = repository(root) if own else None
    view = kind.__new__(kind)  # without what a CPU lacks
    view.root = root
    told = harness.target_record.__wrapped__(view)
    assert (told["version"], told["commit"]) == ("0.19.2rc1", commit)
