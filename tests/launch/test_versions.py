"""The versions in a report are those that a tree states; a commit is told only of a checkout of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from skillgen.evals.kernel import environment
from skillgen.launch.environment import told

INFO = 'MAJOR = 0\nMINOR = 19\nPATCH = 2\nPRE_RELEASE = "rc1"\n__version__ = "0.19.2rc1"\n'


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


def harness(root: Path, *versions: str) -> Any:
    return SimpleNamespace(root=root, versions=versions, runtime_name="no.such.runtime")


@pytest.mark.parametrize("own", [False, True], ids=["a wheel within a repository", "a checkout"])
@pytest.mark.parametrize("folder", ["src/megatron/bridge", "megatron/bridge"], ids=["src", "flat"])
def test_a_tree_has_the_commit_of_no_other_repository(
    own: bool, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path)
    target, core = tmp_path / "target", tmp_path / "core"
    package(target, folder)
    package(core, "megatron/core")
    commits = [repository(root) if own else "" for root in (target, core)]
    spec = told(target, core)
    assert (spec["target"]["version"], spec["target"]["commit"]) == ("0.19.2rc1", commits[0] or None)
    imported = ModuleType("megatron.core")
    imported.__version__ = "0.19.2rc1+abcdef0"  # of the repository around it
    monkeypatch.setitem(sys.modules, "megatron.core", imported)
    record = environment.environment(harness(target, "megatron.core", "absent"), "gloo", spec)
    assert record["versions"]["megatron.core"] == ("0.19.2rc1+" + commits[1][:9] if own else "0.19.2rc1")
    assert record["versions"]["absent"] == "absent"
    assert record["target"] == spec["target"] | {"runtime": None}


def test_a_checkout_with_changes_is_told_as_patched(tmp_path: Path) -> None:
    place = package(tmp_path, "megatron/bridge")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "c"]):
        subprocess.run([*git, *command], check=True)
    assert not told(tmp_path, None)["target"]["commit"].endswith("(patched)")
    (place / "__init__.py").write_text("")
    assert told(tmp_path, None)["target"]["commit"].endswith("(patched)")


def test_an_installed_product_is_told_without_a_commit_and_other_packages_say_it_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "megatron/bridge")
    for name, version in (("megatron.core", "0.19.2+abcdef0"), ("transformer_engine", "2.5.0+f05f12c")):
        module = ModuleType(name)
        module.__version__ = version
        monkeypatch.setitem(sys.modules, name, module)
    spec = told(tmp_path, None)
    assert environment.version("megatron.core", spec) == "0.19.2"
    assert environment.version("transformer_engine", spec) == "2.5.0+f05f12c"


def test_variables_that_matter_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "megatron/bridge")
    for name in (
        "OMP_NUM_THREADS",
        "NCCL_DEBUG",
        "PYTHONFAULTHANDLER",
        "PYTHONFAULTHANDLERS",
        "MY_NCCL_DEBUG",
        "SECRET",
    ):
        monkeypatch.setenv(name, "1")
    found = environment.environment(harness(tmp_path), "gloo", told(tmp_path, None))["variables"]
    assert {"OMP_NUM_THREADS", "NCCL_DEBUG", "PYTHONFAULTHANDLER"} <= found.keys()
    assert not {"PYTHONFAULTHANDLERS", "MY_NCCL_DEBUG", "SECRET"} & found.keys()
