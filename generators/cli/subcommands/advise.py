"""`skillgen advise`: what a cost model says before anything is patched; no target and no torch are needed."""

from __future__ import annotations

import argparse

from skillgen.cli.found import Add
from skillgen.cli.output import Result
from skillgen.engine import registry
from skillgen.kernel.errors import OK, USAGE, SkillgenError


def _hooks() -> dict[str, registry.Adviser]:
    hooks = {name: registry.hook(name, "advise") for name in registry.names()}
    return {name: hook for name, hook in hooks.items() if hook}


def register(command: Add) -> None:
    """The techniques that have advice bring its options."""
    hooks = _hooks()
    told = "; ".join(f"{hook.HELP}: {name}" for name, hook in hooks.items())
    parser = command("advise", f"say {told}", "technique")
    for hook in hooks.values():
        hook.register(parser)


def run(args: argparse.Namespace) -> Result:
    """What the technique says; an error beside its rows where nothing suits."""
    hooks = _hooks()
    registry.about(args.technique)
    if args.technique not in hooks:
        message, hint = f"there is no advice for {args.technique}", f"there is for: {', '.join(hooks)}"
        raise SkillgenError("no-advice", message, hint=hint, exit_code=USAGE)
    found = hooks[args.technique].run(args)
    code = found.error.exit_code if found.error else OK
    return Result(found.rows, found.columns, found.message, exit_code=code, error=found.error)
