"""A wheel and an editable install hold every module and every data file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("generators", "runtime", "evals", "templates", "skills")
PROBE = """
import json, pathlib, pkgutil, sys
import skillgen
from skillgen.kernel import resources
names = sorted(m.name for m in pkgutil.walk_packages(skillgen.__path__, "skillgen.", onerror=lambda name: None))
print(json.dumps({
    "home": str(pathlib.Path(skillgen.__file__).parent),
    "modules": names,
    "data": sorted(str(p.relative_to(resources.root())) for name in ("templates", "skills", "card.yaml")
                   for p in [resources.path(name), *resources.path(name).rglob("*")] if p.is_file()),
    **{name: sorted(str(p.relative_to(resources.package_folder("skillgen." + name)))
                    for p in resources.package_folder("skillgen." + name).rglob("*.py"))
       for name in ("runtime", "evals")},
}))
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--wheel-dir", str(folder), str(checkout))
    return next(folder.glob("skillgen-*.whl"))


def make_environment(folder: Path) -> Path:
    """A venv that sees our build tools and libraries, without the installation under test."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "tools.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(command, check=True)


def names(folder: str, pattern: str = "*") -> list[str]:
    root = ROOT / folder
    found = [path for path in root.rglob(pattern) if path.is_file() and "__pycache__" not in path.parts]
    return sorted(str(path.relative_to(root)) for path in found)


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_installation_is_complete(kind: str, checkout: Path, wheel: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    if kind == "wheel":
        pip("--python", str(python), "install", str(wheel))
    else:
        pip("--python", str(python), "install", "--editable", str(checkout))
    probe = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=True, cwd=tmp_path)
    found = json.loads(probe.stdout)
    assert Path(found["home"]).is_relative_to(tmp_path if kind == "wheel" else checkout)
    modules = {name.removesuffix(".py").replace("/", ".") for name in names("generators", "*.py")}
    wanted = {f"skillgen.{name.removesuffix('.__init__')}" for name in modules if name != "__init__"}
    assert wanted <= set(found["modules"])
    assert found["runtime"] == names("runtime", "*.py")
    assert found["evals"] == names("evals", "*.py")
    data = ["card.yaml", *(f"{folder}/{name}" for folder in ("templates", "skills") for name in names(folder))]
    assert found["data"] == sorted(data)

    said = subprocess.run([python.with_name("skillgen"), "list", "--json"], capture_output=True, text=True, check=True)
    skills = sorted(path.name for path in (ROOT / "skills").iterdir())
    techniques = [row["technique"] for row in json.loads(said.stdout)["rows"]]
    assert sorted([*techniques, "skillgen"]) == skills

    command = [python.with_name("skillgen"), "skills", "install", "--dest", tmp_path, "--json"]
    subprocess.run(command, capture_output=True, check=True)
    for folder in (".agents", ".claude"):
        assert sorted(path.parent.name for path in (tmp_path / folder / "skills").glob("*/SKILL.md")) == skills
    command = [python.with_name("skillgen"), "skills", "validate"]
    subprocess.run([*command, tmp_path / ".claude/skills"], capture_output=True, check=True)


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    members = zipfile.ZipFile(wheel).namelist()
    assert {member.split("/")[0] for member in members} == {"skillgen", "skillgen-0.1.0.dist-info"}
    assert not [member for member in members if "tests/test_" in member and "/_data/" not in member]
    assert not [member for member in members if member.endswith(("/setup.py", ".pyc", "ruff.toml"))]
    assert "skillgen-0.1.0.dist-info/licenses/LICENSE" in members
