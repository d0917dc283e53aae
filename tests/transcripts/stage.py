"""A folder in which what a skill warns of happens, and the list of what is shown where."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from tests.cli.trees import SECOND, git, snapshot, write
from tests.transcripts.skilltext import Line

Rows = list[dict[str, Any]]
Scene = Callable[["Stage", str], None]
SCENES: dict[tuple[str, str], Scene] = {}  # (skill, symptom) -> what provokes it, and then does what the row says


def shows(skill: str, *symptoms: str) -> Callable[[Scene], Scene]:
    """Register what shows these rows of a skill's table of troubles; it is given the row's last cell."""

    def register(scene: Scene) -> Scene:
        SCENES.update({(skill, symptom): scene for symptom in symptoms})
        return scene

    return register


@dataclass
class Stage:
    """The command line, in a folder of its own."""

    skill: str
    folder: Path
    fetch: Callable[[str, str], Path]
    capsys: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch
    stderr: str = ""  # of the last command

    def say(self, *words: object) -> dict[str, Any]:
        self.capsys.readouterr()
        code = main([*map(str, words), "--json"])
        said = self.capsys.readouterr()
        answer: dict[str, Any] = json.loads(said.out)
        self.stderr = said.err
        assert answer["exit_code"] == code
        return answer

    def done(self, *words: object) -> Rows:
        """The rows of a command that has to work."""
        answer = self.say(*words)
        assert answer["ok"], (words, answer["error"])
        rows: Rows = answer["rows"]
        return rows

    def refused(self, exit_code: int, code: str, *words: object) -> dict[str, str]:
        """The error of a command that has to be refused, and to change nothing."""
        before = snapshot(self.folder)
        answer = self.say(*words)
        assert not answer["ok"] and (answer["exit_code"], answer["error"]["code"]) == (exit_code, code), answer
        assert snapshot(self.folder) == before
        error: dict[str, str] = answer["error"]
        return error

    def follow(self, text: str, **places: object) -> Rows:
        """Run the command that a text gives in backticks, or that a hint is."""
        (command,) = re.findall(r"`(skillgen .+?)`", text) or [text]
        return self.done(*Line.of(command).filled({place: str(value) for place, value in places.items()}).command())

    def miniature(self, name: str = "tree") -> Path:
        """A small Megatron-Bridge with two families that vision-dp-over-cp patches."""
        write(self.folder / name / "megatron/bridge", SECOND)
        return self.folder / name

    def checkout(self, name: str = "tree", ruff: str = "") -> Path:
        """The same as a git checkout."""
        root = self.miniature(name)
        if ruff:
            (root / "ruff.toml").write_text(ruff)
        git(root, "init", "-q")
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", "start")
        return root

    def example(self) -> Path:
        """A tree that the skill's technique patches: a release where no miniature will do."""
        specs = {"blockdiag-gqa": "nemo-automodel==0.7.0", "vision-frame-sharding": "nemo-automodel==0.5.0"}
        if self.skill in ("skillgen", "vision-dp-over-cp"):
            return self.miniature()
        return self.fetch(specs.get(self.skill, "megatron-bridge==0.6.2"), "tree")

    @property
    def technique(self) -> str:
        return "vision-dp-over-cp" if self.skill == "skillgen" else self.skill


def option(do: str) -> str:
    """The option that a text says to give."""
    return str(re.findall(r"`(--[a-z-]+)`", do)[0])
