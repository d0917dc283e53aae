"""Folders as a user has them: the releases that a skill's example fetches."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skillgen.kernel import resources
from tests.releases import original
from tests.transcripts.skilltext import Skill

SHORT = {"megatron-bridge": "bridge", "megatron-core": "core", "nemo-automodel": "automodel"}
Fetch = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def pack() -> Skill:
    return Skill.read(resources.path("skills/skillgen"))


@pytest.fixture
def fetch(tmp_path: Path) -> Fetch:
    """What `skillgen fetch SPEC FOLDER` does, from releases that `make` has fetched."""

    def copy(spec: str, folder: str) -> Path:
        name, version = spec.removeprefix("pypi:").split("==")
        source = original(f"{SHORT[name]}-{version}")
        shutil.copytree(source, tmp_path / folder, ignore=shutil.ignore_patterns(".skillgen", "__pycache__"))
        return tmp_path / folder

    return copy
