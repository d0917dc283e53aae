"""Find the pack's own data: beside the packages in a checkout, under `skillgen/_data` in a wheel."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]  # of the package


def root() -> Path:
    """The folder that holds templates/, skills/ and card.yaml."""
    packed = HERE / "_data"
    return packed if packed.is_dir() else HERE.parent


def path(name: str) -> Path:
    """The path of a data file or folder, e.g. `templates/test.py.j2`."""
    found = root() / name
    if not found.exists():
        raise FileNotFoundError(f"skillgen was installed without {name}: {found}")
    return found


def package_folder(name: str) -> Path:
    """The folder of one of our packages, found without importing it (`skillgen.runtime` imports torch)."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"skillgen was installed without the package {name}")
    return Path(next(iter(spec.submodule_search_locations)))


def runtime_sources(modules: Iterable[str], package: str = "") -> dict[str, str]:
    """The runtime's files by name, as text: these modules, what they import of the runtime, and `__init__`.

    With `package`, modules of that subpackage instead, which import the runtime's from the folder above theirs.
    """
    folder = package_folder("skillgen.runtime") / package
    sources: dict[str, str] = {}
    wanted = ["__init__", *modules]
    while wanted:
        name = f"{wanted.pop()}.py"
        if name not in sources:
            sources[name] = (folder / name).read_text(encoding="utf-8")
            wanted += re.findall(r"^from \.(\w+) import", sources[name], flags=re.MULTILINE)
    return dict(sorted(sources.items()))


def version() -> str:
    """The version of the pack."""
    try:
        return installed_version("skillgen")
    except PackageNotFoundError:
        return "0+unknown"
