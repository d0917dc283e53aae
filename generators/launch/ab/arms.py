"""Two command lines that differ in one flag."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skillgen.kernel.errors import USAGE, SkillgenError

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True)
class Flag:
    """What is flipped: KEY=VALUE or `--key value`, whichever the trainer takes, or a variable."""

    key: str
    values: tuple[str, str]

    @classmethod
    def parse(cls, text: str) -> Flag:
        """KEY, or KEY=A,B; the arms without values of their own are false and true, 0 and 1 for a variable."""
        key, given, values = text.partition("=")
        pair = tuple(values.split(",")) if given else ("0", "1") if ENVIRONMENT.fullmatch(key) else ("false", "true")
        if not key.strip("-") or len(pair) != 2 or pair[0] == pair[1]:
            message = f"--flag {text}: it is KEY, or KEY=A,B with two values that differ"
            raise SkillgenError("bad-flag", message, exit_code=USAGE)
        if re.search(r"[\x00-\x1f]", text):
            raise SkillgenError("bad-flag", f"--flag {text!r}: it is more than one line", exit_code=USAGE)
        return cls(key, (pair[0], pair[1]))

    def words(self, value: str) -> list[str]:
        """On the command line; none for a variable."""
        if ENVIRONMENT.fullmatch(self.key):
            return []
        return [self.key, value] if self.key.startswith("-") else [f"{self.key}={value}"]

    def variables(self, value: str) -> dict[str, str]:
        """In the environment, where the flag is a variable."""
        return {self.key: value} if ENVIRONMENT.fullmatch(self.key) else {}


@dataclass(frozen=True)
class Arm:
    """One of the two runs."""

    name: str  # A or B
    value: str
    words: tuple[str, ...]
    variables: dict[str, str]


def arms(command: Sequence[str], flag: Flag) -> list[Arm]:
    """The two runs: the flag goes where `{flag}` is, or last; `{arm}` is a or b, for folders of their own."""
    made = []
    for name, value in zip("AB", flag.values, strict=True):
        words = [word.replace("{arm}", name.lower()) for word in command]
        at = words.index("{flag}") if "{flag}" in words else len(words)
        words[at : at + 1] = flag.words(value)
        made.append(Arm(name, value, tuple(words), flag.variables(value)))
    return made


def recipe(
    target: Target, name: str, flag: Flag, rest: Sequence[str], *, nproc: int, nnodes: int, python: str
) -> tuple[list[str], Flag, dict[str, str]]:
    """The command of a target's recipe, the flag as that target takes it, and what finds the target's own code."""
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(nproc)]
    if nnodes > 1:
        command += ["--nnodes", "{nnodes}", "--rdzv-backend", "c10d", "--rdzv-endpoint", "{endpoint}"]
    plain = not flag.key.startswith("-") and not flag.variables("")
    how = target.about.recipes
    if how is None:
        raise SkillgenError("no-recipes", f"{target.product} has no recipes", exit_code=USAGE)
    if how.script:
        script = target.root / how.script
        if not script.is_file():
            hint = "name a git checkout, or give the command after --"
            raise SkillgenError("no-recipes", f"a {target.kind} without {how.script}", hint=hint, exit_code=USAGE)
        command += [str(script), *how.words, name, *rest]
    else:
        config = next((path for path in (Path(name), target.root / name) if path.is_file()), None)
        if config is None:
            raise SkillgenError("no-recipe", f"--recipe {name}: no such YAML file", exit_code=USAGE)
        command += ["-m", how.module, str(config.resolve()), *rest]
    if plain and not (how.flag.endswith(".") and "." in flag.key):  # a key with a section is whole
        flag = Flag(f"{how.flag}{flag.key}", flag.values)
    return command, flag, {"PYTHONPATH": str(target.search_path)}
