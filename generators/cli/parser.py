"""The command line: options in, one result out, as tables for people or as one JSON object for programs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from skillgen.cli import found as subcommands
from skillgen.cli import options
from skillgen.cli.failure import MOST, capped, failure
from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.kernel.product import beside, titles
from skillgen.launch import cluster

LINES = 400  # of a traceback, each entry of which is cut as well
EXITS = """\
exit codes:
  0 done, or nothing to do    1 an eval failed       2 usage, or not a target
  3 refused                   4 an anchor drifted    5 conflict with later edits
  6 input/output             70 a defect of skillgen (SKILLGEN_DEBUG=1 shows where)
130 interrupted
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SkillgenError("usage", message, hint=f"{self.prog} --help", exit_code=USAGE)


class _Version(argparse.Action):
    """Reads the installed metadata only when asked: it costs more than the parser."""

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        from skillgen.kernel.resources import version

        print(f"skillgen {version()}")
        sys.exit(0)


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="skillgen",
        description=f"Patch a tree of {titles()} with a parallelism technique, and prove it.",
        epilog=EXITS,
        formatter_class=raw,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)

    def command(name: str, help: str, *arguments: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        for argument in arguments:
            sub.add_argument(argument.strip("[]"), nargs="?" if argument[0] == "[" else None, help=ARGUMENTS[argument])
        return sub

    command("list", "list the techniques of this pack")
    scan = _family(command("scan", "show where each technique applies, and why not elsewhere", "target"))
    scan.add_argument("--technique", metavar="NAME", help="one technique only (default: all)")
    plan = _options(command("plan", "show the diff that apply would make; writes nothing", "technique", "target"))
    plan.add_argument("--output", metavar="FILE", help="write the diff to FILE, for git apply")
    apply = _options(command("apply", "patch the target: all of it or none of it", "technique", "target"))
    apply.add_argument("--allow-dirty", action="store_true", help="touch files with uncommitted changes")
    command("status", "show what is applied, and whether it was edited since", "target")
    _family(command("revert", "put every byte back as it was", "technique", "target"))
    command("fetch", "unpack a release as a source tree, without pip and without an install", "spec", "folder")
    command("doctor", "check this environment and a target, and what each absence means", "[target]")
    _eval(_family(command("eval", "run the patched code under torchrun, both arms, and judge", "technique", "target")))
    for name in subcommands.names():
        subcommands.load(name).register(command)
    return parser


ARGUMENTS = {
    "technique": "a name from `skillgen list`",
    "target": "a git checkout, an unpacked wheel, or a site-packages folder",
    "[target]": "a target to check as well",
    "spec": "pypi:NAME==VERSION, or the path of a wheel",
    "folder": "where to: a folder that is missing or empty",
}


def _family(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--family", action="append", metavar="NAME", help="a model family (repeatable; default: all)")
    return parser


def _options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    _family(parser)
    options.add(parser)
    parser.add_argument("--no-lint", action="store_true", help="do not ask the target's own ruff configuration")
    return parser


def _eval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nproc", type=cluster.count(1), default=2, metavar="N", help="ranks on each node (default 2)"
    )
    parser.add_argument("--backend", choices=["gloo", "nccl"], default="gloo", help="default gloo, on CPUs")
    parser.add_argument("--report", metavar="DIR", help="where the JSON, Markdown and HTML reports go")
    parser.add_argument(
        "--kind", action="append", metavar="KIND", help="a kind of case, e.g. parity (repeatable; default: all)"
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="run only the probe, where the technique's eval has one: it needs no patch",
    )
    parser.add_argument("--mutate", metavar="NAME", help="break the runtime on purpose: the eval must fail")
    parser.add_argument("--baseline", metavar="METHOD", help="a second splitting method to compare the cost with")
    parser.add_argument("--python", metavar="EXE", help="the Python of the evaluation environment (default: this one)")
    parser.add_argument(
        "--timeout", type=cluster.seconds, default=900, metavar="S", help="end the whole run after S seconds (900)"
    )
    core = beside()
    parser.add_argument(f"--{core.option}", metavar="DIR", help=f"a {core.title} tree (default: the installed one)")
    parser.add_argument(
        "--nnodes", type=cluster.count(1), metavar="N", help="nodes (default 1); here, each runs this command"
    )
    parser.add_argument("--rdzv-endpoint", metavar="HOST:PORT", help="where they meet, passed to torchrun")
    cluster.add_options(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    args = argparse.Namespace(command=next((a for a in arguments if a[:1] != "-"), ""), target=None)
    try:
        args = build_parser().parse_args(arguments)
        from skillgen.cli.commands import run

        result = run(args)
    except SkillgenError as error:
        return _fail(args, error, as_json, error)
    except (KeyboardInterrupt, Exception) as error:
        return _fail(args, failure(error), as_json, error)
    from skillgen.cli.output import emit

    try:
        code = emit(args, result, as_json)
        sys.stdout.flush()
        return code
    except (BrokenPipeError, SystemExit):  # the reader, `head` for one, has seen enough; rich exits then
        _close_stdout()
        return result.exit_code
    except (KeyboardInterrupt, OSError) as error:  # part of the answer may be out: no second object after it
        if isinstance(error, OSError):
            _close_stdout()
        return _fail(args, failure(error), False, error)


def _close_stdout() -> None:
    """Let Python's own flush at the end succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(args: argparse.Namespace, error: SkillgenError, as_json: bool, cause: BaseException) -> int:
    if os.environ.get("SKILLGEN_DEBUG") == "1":
        import traceback

        parts = traceback.format_exception(cause)
        lines = [line for part in parts for line in capped(part, 5 * MOST).splitlines()]
        if len(lines) > LINES:
            lines[LINES // 2 : -LINES // 2] = [f"... {len(lines) - LINES} more lines"]
        print("\n".join(lines), file=sys.stderr)
    from skillgen.cli.output import emit_error

    return emit_error(args, error, as_json)
