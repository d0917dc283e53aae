"""The commands that skills give are those that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from skillgen.cli.parser import build_parser
from skillgen.engine import registry
from skillgen.engine.suites import suite_of
from skillgen.kernel import resources
from skillgen.kernel.errors import SkillgenError

SKILLS = sorted(resources.path("skills").iterdir())
PLACES = {"TECHNIQUE": "vision-dp-over-cp", "AGENT": "codex", "N": "2"}
PAGES = [page for skill in SKILLS for page in [skill / "SKILL.md", *sorted((skill / "references").iterdir())]]


def commands(page: str) -> list[str]:
    """Whole lines in blocks, and what stands in backticks with an argument."""
    blocks = [
        line
        for block in re.findall(r"^ *```\w*\n(.*?)```", page, re.DOTALL | re.MULTILINE)
        for line in block.split("\n")
    ]
    prose = re.sub(r"^ *```.*?```", "", page, flags=re.DOTALL | re.MULTILINE)
    spans = [span.replace("\n", " ") for span in re.findall(r"`(skillgen \S[^`]*)`", prose)]
    return [line.strip() for line in blocks if line.strip().startswith("skillgen ")] + [
        span for span in spans if len(span.split()) > 2
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parents[page.name != 'SKILL.md'].name}/{page.name}")
def test_every_command_is_one(page: Path) -> None:
    for command in commands(page.read_text(encoding="utf-8")):
        words = [PLACES.get(word, word) for word in shlex.split(command)[1:]]
        try:
            args = build_parser().parse_args(words)
        except SkillgenError as error:
            pytest.fail(f"{command}: {error.message}")
        except SystemExit as end:  # --help
            assert not end.code, command
            continue
        if getattr(args, "technique", None):
            assert args.technique in registry.names(), command
        if args.command == "eval":
            suite = suite_of(args.technique)
            assert set(args.kind or ()) <= set(suite.KINDS), command


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
def test_the_loop_is_in_every_skill(skill: Path) -> None:
    found = {command.split()[1] for command in commands((skill / "SKILL.md").read_text(encoding="utf-8"))}
    wanted = {"scan", "revert"} if skill.name == "skillgen" else {"scan", "plan", "apply", "eval", "revert", "fetch"}
    assert wanted <= found


@pytest.mark.parametrize("technique", registry.names())
def test_the_kinds_of_the_eval_are_explained(technique: str) -> None:
    page = resources.path(f"skills/{technique}/references/verification.md").read_text(encoding="utf-8")
    table = page.partition("| kind | passes when |\n|---|---|\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| ([a-z-]+) \|", table, re.MULTILINE)) == set(suite_of(technique).KINDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parents[page.name != 'SKILL.md'].name}/{page.name}")
def test_every_skill_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"the\s+skill\s+`([a-z-]+)`", page.read_text(encoding="utf-8")))
    assert named <= {skill.name for skill in SKILLS}


def test_a_command_that_is_none_would_be_seen(tmp_path: Path) -> None:
    for text in (
        "`skillgen scan TARGET --techniques x`",
        "```\nskillgen patch x\n```",
        "`skillgen eval no-such TARGET`",
    ):
        page = tmp_path / "page.md"
        page.write_text(f"Run:\n\n{text}\n")
        assert commands(page.read_text())
        with pytest.raises((pytest.fail.Exception, AssertionError)):
            test_every_command_is_one(page)
