"""The examples of the skills run as they stand, in a shell, one after the other."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from skillgen.engine import registry
from skillgen.kernel import resources
from tests.cli.trees import git
from tests.transcripts.conftest import Fetch
from tests.transcripts.skilltext import Skill

pytestmark = pytest.mark.evals

SKILLS = {path.name: Skill.read(path) for path in sorted(resources.path("skills").iterdir())}
CHECKOUTS = {"~/Megatron-Bridge": "megatron-bridge==0.6.2", "~/Automodel": "nemo-automodel==0.7.0"}
# these need a network, and an eval takes as long as the one of the client that follows the steps
ELSEWHERE = ("skillgen fetch ", "npx ", "skillgen eval ")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home with a project, and skillgen as a program."""
    (tmp_path / "project").mkdir()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/skillgen"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m skillgen "$@"\n')
    program.chmod(0o755)
    return os.environ | {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("name", SKILLS)
def test_the_examples_work_as_they_stand(name: str, fetch: Fetch, tmp_path: Path, environment: dict[str, str]) -> None:
    sessions = SKILLS[name].sessions
    commands = [line for session in sessions for line in session]
    if name in registry.names():  # the client that follows the steps has run the example from nothing
        commands = [line for session in sessions if not session[0].startswith("skillgen fetch ") for line in session]
    words = {word for line in commands for word in line.split()}
    for line in SKILLS[name].from_nothing():
        if line.verb == "fetch" and line.words[1] in words:
            fetch(*line.words)
    for place, spec in CHECKOUTS.items():
        if place in words:
            tree = fetch(spec, place.removeprefix("~/"))
            git(tree, "init", "-q")
            git(tree, "add", ".")
            git(tree, "commit", "-q", "-m", "start")
    run = [line for line in commands if not line.startswith(ELSEWHERE)]
    assert run
    for line in run:
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr)
