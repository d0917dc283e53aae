"""`skillgen skills`: list the pack's skills, check skill folders by the rules, install them where agents look."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.cli.output import Result
from skillgen.kernel.errors import EVAL_FAILED, USAGE, SkillgenError

if TYPE_CHECKING:
    import argparse

    from skillgen.cli.found import Add

COLUMNS = {
    "list": ("skill", "version", "description"),
    "validate": ("skill", "rule", "level", "file", "line", "do"),
    "install": ("skill", "state", "path", "agents"),
}


def register(command: Add) -> None:
    """Add the parser, with an action of its own for each thing to do."""
    from argparse import SUPPRESS

    parser = command("skills", "list, check and install the skills that tell agents how to use this pack")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=type(parser))

    def action(name: str, help: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        sub.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON object")
        return sub

    action("list", "list the skills of this pack")
    validate = action("validate", "check skill folders: every finding with its rule, file, line, and what to do")
    validate.add_argument(
        "dirs", nargs="*", metavar="DIR", help="a skill's folder, or a folder of skills (default: this pack's)"
    )
    install = action("install", "copy skills into the folders that agents read")
    install.add_argument(
        "--agent",
        action="append",
        metavar="NAME",
        help="claude-code, codex, cursor or another (repeatable; default: .agents/skills, which most read, and "
        ".claude/skills)",
    )
    install.add_argument(
        "--dest", default=".", metavar="DIR", help="the project, or the home folder, to install in (default: .)"
    )
    install.add_argument("--skill", action="append", metavar="NAME", help="a skill (repeatable; default: all)")
    install.add_argument("--force", action="store_true", help="replace foreign and edited folders of the same name")


def run(args: argparse.Namespace) -> Result:
    """Do what was asked."""
    return {"list": _list, "validate": _validate, "install": _install}[args.action](args)


def _list(args: argparse.Namespace) -> Result:
    from skillgen.kernel.resources import path
    from skillgen.skillpack.install import names
    from skillgen.skillpack.skill import Skill

    heads = [(name, Skill(path("skills") / name).head) for name in names()]
    rows = [
        {"skill": name, "version": head["metadata"]["version"], "description": head["description"]}
        for name, head in heads
    ]
    return Result(rows, COLUMNS["list"], f"in {path('skills')}")


def _validate(args: argparse.Namespace) -> Result:
    from skillgen.kernel.resources import path
    from skillgen.skillpack.rules import check, folders

    rows: list[dict[str, Any]] = []
    checked = 0
    for place in map(Path, args.dirs or [path("skills")]):
        found = folders(place) if place.is_dir() else []
        if not found:
            raise SkillgenError(
                "no-skill",
                f"{place} holds no skill",
                hint="a folder with a SKILL.md, or a folder of such",
                exit_code=USAGE,
            )
        checked += len(found)
        for folder in found:
            rows += [{"skill": str(folder), **finding.as_json()} for finding in check(folder)]
    errors = sum(row["level"] == "error" for row in rows)
    message = f"{checked} skills: {errors} errors, {len(rows) - errors} warnings"
    if not errors:
        return Result(rows, COLUMNS["validate"], message)
    error = SkillgenError("skill-findings", message, hint="each row says what to do", exit_code=EVAL_FAILED)
    return Result(rows, COLUMNS["validate"], exit_code=EVAL_FAILED, error=error)


def _install(args: argparse.Namespace) -> Result:
    from skillgen.kernel.paths import given
    from skillgen.skillpack.install import AGENTS, install

    if unknown := [agent for agent in args.agent or () if agent not in AGENTS]:
        raise SkillgenError(
            "unknown-agent",
            f"no agent is called {unknown[0]!r}",
            hint=f"one of: {', '.join(AGENTS)}; most others read {AGENTS['codex']}, as codex does",
            exit_code=USAGE,
        )
    rows = install(args.skill or [], args.agent or [], given(args.dest), force=args.force)
    written = sum(row["state"] not in ("unchanged", "linked") for row in rows)
    return Result(
        rows, COLUMNS["install"], f"{written} of {len(rows)} folders written" if written else "nothing to do"
    )
