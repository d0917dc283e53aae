"""A client that knows of skillgen only what skills say: it reads, fills in, runs, and goes by the answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.transcripts.skilltext import Line, Skill, Unclear

Answer = dict[str, Any]
Say = Callable[[list[str]], Answer]
AGENT = "codex"  # what this client is


class TurnedAway(AssertionError):
    """The skill says to stop here."""


def command_line(folder: Path) -> Say:
    """Run commands in a folder, each as a process of its own."""

    def say(words: list[str]) -> Answer:
        command = [sys.executable, "-m", "skillgen", *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
        answer: Answer = json.loads(done.stdout)
        assert answer["exit_code"] == done.returncode
        return answer

    return say


@contextmanager
def over_the_server(folder: Path) -> Iterator[Say]:
    """The same by the tools of `skillgen mcp`, and by the command line what is no tool."""
    from tests.mcp.client import tools_for_commands

    shell = command_line(folder)
    with tools_for_commands(folder) as tool:
        yield lambda words: (shell if words[0] in ("doctor", "skills") else tool)(words)


class Client:
    """Has been given the skill of the pack, and a user's tree."""

    def __init__(self, pack: Skill, say: Say) -> None:
        self.pack, self.say = pack, say

    def technique(self, sentence: str) -> str:
        """The technique for what the user says, by the first table of the pack's skill."""
        (found,) = [row for row in self.pack.rows("Purpose") if row[0] == sentence]
        if len(found) == 2:
            raise TurnedAway(found[1])
        return found[2].strip("`")

    def skill(self, technique: str, folder: Path) -> Skill:
        """The technique's skill, from where the pack's skill says that it is put."""
        for line in self.instructed({"TARGET": ".", "TECHNIQUE": technique}):
            if line.words[:1] == ("install",):
                line = Line(line.verb, line.words, (*line.options, ("--dest", str(folder))))
                for row in self.run(line)["rows"]:
                    if row["skill"] == technique:
                        return Skill.read(folder / row["path"])
        raise Unclear(f"{self.pack.name} does not say where the skill of {technique} is")

    def instructed(self, values: dict[str, str]) -> list[Line]:
        """The commands of the pack's own skill."""
        return self.pack.instructed({"AGENT": AGENT, **values})

    def follow(
        self, skill: Skill, *, more: Sequence[str] = (), without: Sequence[str] = ()
    ) -> Iterator[tuple[Line, Answer]]:
        """Look as the pack's skill says, take the technique's steps, and look again before what takes it back.

        `more` is added to an eval, to limit it; commands `without` are not run.
        """
        values = skill.values()
        mine = skill.instructed(values)
        around = self.instructed({**values, "TECHNIQUE": skill.name})
        around = [line for line in around if line.verb in ("doctor", "scan", "status")]
        before = [line for line in around if line.verb != "status"]
        after = [line for line in around if line.verb == "status"]
        for line in [*before, *mine[:-1], *after, *mine[-1:], *after]:
            if line.verb in without:
                continue
            answer = self.run(line, more if line.verb == "eval" else ())
            if line.verb == "scan":
                rows = [row for row in answer["rows"] if row["technique"] == skill.name]
                if not any(row["plannable"] for row in rows):
                    raise TurnedAway(", ".join(f"{row['family']}: {row['reason']}" for row in rows))
            yield line, answer

    def run(self, line: Line, more: Sequence[str] = ()) -> Answer:
        answer = self.say([*line.command(), *more])
        if not answer["ok"]:
            raise Unclear(f"{line.command()} ends with {answer['exit_code']}: {answer['error']}")
        return answer
