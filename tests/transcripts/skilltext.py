"""What a client that reads a skill's text alone makes of it: steps, commands, example sessions, tables."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PLACE = re.compile(r"[A-Z]+")  # TARGET, NAME, MCORE, DIR: for the reader to fill in


class Unclear(AssertionError):
    """The text does not allow the next step."""


@dataclass(frozen=True)
class Line:
    """One command of a text, in words and options."""

    verb: str
    words: tuple[str, ...]
    options: tuple[tuple[str, str], ...]  # a flag has the value ""

    @staticmethod
    def of(text: str) -> Line:
        program, verb, *rest = shlex.split(text)
        assert program == "skillgen", text
        words: list[str] = []
        options: list[tuple[str, str]] = []
        while rest:
            word = rest.pop(0)
            if word.startswith("--"):
                options.append((word, rest.pop(0) if rest and not rest[0].startswith("--") else ""))
            else:
                words.append(word)
        return Line(verb, tuple(words), tuple(options))

    def command(self) -> list[str]:
        return [self.verb, *self.words, *(part for option in self.options for part in option if part)]

    def places(self) -> set[str]:
        return {word for word in self.command() if PLACE.fullmatch(word)}

    def filled(self, values: dict[str, str]) -> Line:
        options = tuple((option, values.get(value, value)) for option, value in self.options)
        return Line(self.verb, tuple(values.get(word, word) for word in self.words), options)

    def matched(self, example: Line) -> dict[str, str] | None:
        """What stands in an example where this line has a placeholder; None if it is no example of it."""
        given = dict(example.options)
        if (self.verb, len(self.words)) != (example.verb, len(example.words)):
            return None
        if any(option not in given for option, _ in self.options):
            return None
        pairs = [*zip(self.words, example.words, strict=True), *((v, given[o]) for o, v in self.options)]
        found: dict[str, str] = {}
        for mine, its in pairs:
            if PLACE.fullmatch(mine):
                if found.setdefault(mine, its) != its:
                    return None
            elif mine != its:
                return None
        return found


def spans(text: str) -> list[Line]:
    """Commands in backticks that have arguments."""
    found = [span.replace("\n", " ") for span in re.findall(r"`(skillgen \S[^`]*)`", text)]
    return [Line.of(span) for span in found if len(span.split()) > 2]


class Skill:
    """The parts of one SKILL.md."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.name = str(re.findall(r"^name: (.+)$", text, re.MULTILINE)[0])
        parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
        self.sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        self.steps = re.split(r"^\d+\. ", self.sections["Instructions"], flags=re.MULTILINE)[1:]
        blocks = re.findall(r"^```\n(.*?)```", self.sections["Examples"], re.DOTALL | re.MULTILINE)
        self.sessions = [block.strip().splitlines() for block in blocks]

    @staticmethod
    def read(folder: Path) -> Skill:
        return Skill((folder / "SKILL.md").read_text(encoding="utf-8"))

    def rows(self, section: str) -> list[list[str]]:
        """The cells of a section's tables, without heads."""
        tables = re.findall(r"^\|.+\n\|[-|]+\|\n((?:\|.+\n)+)", self.sections[section] + "\n", re.MULTILINE)
        return [line.strip("| ").split(" | ") for table in tables for line in table.splitlines()]

    def from_nothing(self) -> list[Line]:
        """The example session that begins with fetching a release."""
        for session in self.sessions:
            if session[0].startswith("skillgen fetch "):
                return [Line.of(line) for line in session if line.startswith("skillgen ")]
        raise Unclear(f"{self.name}: no example begins with a release to fetch")

    def values(self) -> dict[str, str]:
        """What the example from nothing puts in the place of every placeholder of the instructions."""
        session, values = self.from_nothing(), {}
        for line in (line for step in self.steps for line in spans(step)):
            for example in session:
                for place, value in (line.matched(example) or {}).items():
                    if values.setdefault(place, value) != value:
                        raise Unclear(f"{self.name}: {place} is both {values[place]} and {value}")
        return values

    def instructed(self, values: dict[str, str]) -> list[Line]:
        """The commands of the steps, ready to run; what `values` leave open is as in an example of this skill."""
        examples = [Line.of(text) for session in self.sessions for text in session if text.startswith("skillgen ")]
        return [self._ready(line, values, examples) for step in self.steps for line in spans(step)]

    def _ready(self, line: Line, values: dict[str, str], examples: list[Line]) -> Line:
        ready = line.filled(values)
        if not ready.places():
            return ready
        for example in examples:  # the step says the rest in words, and the example spells it out
            if line.matched(example) is not None:
                return example
        raise Unclear(f"{self.name}: what is {', '.join(sorted(ready.places()))} in {line.command()}?")
