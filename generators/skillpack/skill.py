"""A skill folder as the rules see it, and what they say of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from skillgen.kernel import yaml as card_yaml

CARD, EVALS = "config/card.yaml", "evals/evals.json"  # each has a rule of its own
MOST = 80  # characters of a name that a finding repeats


@dataclass(frozen=True)
class Finding:
    """One thing to change. `line` is 0 where a whole file or folder is meant."""

    rule: str
    file: str
    line: int
    do: str
    level: str = "error"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Skill:
    """A folder as the rules see it."""

    folder: Path
    found: list[Finding] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def text(self) -> str:
        return self.read("SKILL.md")[0]

    @cached_property
    def pack(self) -> Path | None:
        """The source tree of the pack that the skill is in."""
        tree = self.folder.parents[1] if len(self.folder.parents) > 1 else self.folder
        return tree if (tree / "card.yaml").is_file() and (tree / "pyproject.toml").is_file() else None

    def read(self, file: str) -> tuple[str, str]:
        """The text of a file in the folder, and what is wrong with it."""
        return card_yaml.read(self.folder / file)

    @cached_property
    def parts(self) -> tuple[str, str]:
        """The front matter and the body."""
        match = re.match(r"---\n(.*?\n)---\n(.*)", self.text, re.DOTALL)
        return (match[1], match[2]) if match else ("", self.text)

    @cached_property
    def head(self) -> dict[str, Any]:
        head, wrong = card_yaml.load(self.parts[0])
        return head if isinstance(head, dict) and not wrong else {}

    def line(self, text: str) -> int:
        """The line of SKILL.md that begins with `text`, else 1."""
        lines = self.text.splitlines()
        return next((number for number, line in enumerate(lines, 1) if line.startswith(text)), 1)

    def section(self, title: str) -> str:
        match = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", self.parts[1], re.DOTALL | re.MULTILINE)
        return match[1] if match else ""

    def say(self, rule: str, do: str, file: str = "SKILL.md", line: int = 0, level: str = "error") -> None:
        """Half a character, which an escape or a file's name may hold, is shown as a question mark."""
        file, do = (words.encode(errors="replace").decode() for words in (file, do))
        self.found.append(Finding(rule, file, line, do, level))


Rule = Callable[[Skill], None]
