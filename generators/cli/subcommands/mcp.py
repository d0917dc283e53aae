"""`skillgen mcp`: serve the commands that patch and prove to agents, over the Model Context Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillgen.cli.output import Result
from skillgen.kernel.errors import USAGE, SkillgenError

if TYPE_CHECKING:
    import argparse

    from skillgen.cli.found import Add

EPILOG = """\
Speaks on stdin and stdout; an agent's program starts it. Tools: list, scan, plan, apply, status, revert, eval. Each
takes the arguments of its command and answers what --json prints. Targets, reports and trees beside them have to lie
in a --root; links that lead out of one are refused.
"""


def register(command: Add) -> None:
    """Add the command's parser."""
    from argparse import RawDescriptionHelpFormatter

    parser = command("mcp", "serve scan, plan, apply, eval, status and revert to agents, as an MCP server on stdio")
    parser.epilog = EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.add_argument(
        "--root", action="append", required=True, metavar="DIR", help="a folder to which it is confined (repeatable)"
    )
    parser.add_argument("--allow-write", action="store_true", help="let apply and revert write, and eval a report")
    parser.add_argument(
        "--allow-run", action="store_true", help="let eval run the target's code, which can do anything"
    )
    parser.add_argument(
        "--python", action="append", metavar="EXE", help="a Python that eval may use beside this one (repeatable)"
    )


def run(args: argparse.Namespace) -> Result:
    """Serve until the client is gone."""
    if args.json:
        raise SkillgenError("usage", "--json: stdout belongs to the protocol, answers are JSON", exit_code=USAGE)
    try:
        from skillgen.mcp.server import Pack, serve
    except ImportError as error:
        raise SkillgenError(
            "missing-dependency",
            f"the server needs version 2 of the Model Context Protocol's SDK: {error}",
            hint="pip install 'mcp>=2,<3'",
            exit_code=USAGE,
        ) from error
    from skillgen.mcp.roots import Roots

    roots = Roots(args.root)
    serve(Pack(roots, allow_write=args.allow_write, allow_run=args.allow_run, pythons=args.python or []))
    return Result()
