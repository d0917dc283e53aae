"""Look at a report of an eval, or at what changed between two."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skillgen.cli.output import Result
from skillgen.kernel.errors import EVAL_FAILED, USAGE, SkillgenError

if TYPE_CHECKING:
    from skillgen.cli.found import Add

CASES = ("family", "kind", "name", "status", "seconds", "reason")
CHANGES = ("worse", "what", "name", "before", "after", "change")
COMPARE = """\
worse is:
  a verdict that is no longer a pass; a case that passed and now fails, is skipped or is gone; a new failure
  a check that is gone from a case that passes, or whose value is over the limit that it had before
  patches, activations, or bytes on the wire of the sharded arm that grew on the busiest rank by more than --tolerance

exit codes: 0 nothing got worse, 1 something got worse, 2 no report of this version or not comparable, 6 no such file
"""


def register(command: Add) -> None:
    """Add `report show` and `report compare`."""
    actions = command("report", "show a report of an eval, or what changed between two").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    where = "a folder that `skillgen eval --report` wrote, or its report.json"
    raw = argparse.RawDescriptionHelpFormatter
    show = actions.add_parser("show", help="print the verdict and every case")
    show.add_argument("report", help=where)
    compare = actions.add_parser(
        "compare", help="print what changed, what got worse first", epilog=COMPARE, formatter_class=raw
    )
    compare.add_argument("before", help=where)
    compare.add_argument("after", help="the same, of the later run")
    compare.add_argument(
        "--tolerance", type=float, default=5, metavar="PERCENT", help="growth of a cost that is not worse (default 5)"
    )
    compare.add_argument("--times", action="store_true", help="judge times too: they need a machine to themselves")
    for action in (show, compare):
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")


def run(args: argparse.Namespace) -> Result:
    """Do what was asked."""
    return _show(args) if args.action == "show" else _compare(args)


def _show(args: argparse.Namespace) -> Result:
    from skillgen.report.record import read
    from skillgen.report.rows import facts

    record = read(args.report)
    told = [f"{name}: {value}" for name, value in facts(record).items()]
    return Result(record["rows"], CASES, "\n".join([record["verdict"], *record["gains"], record["command"], *told]))


def _compare(args: argparse.Namespace) -> Result:
    from skillgen.report.compare import compare
    from skillgen.report.record import read

    if not args.tolerance >= 0:
        raise SkillgenError(
            "bad-tolerance", f"--tolerance {args.tolerance:g}: it is a percentage, 0 or more", exit_code=USAGE
        )
    before, after = read(args.before), read(args.after)
    rows = compare(before, after, tolerance=args.tolerance / 100, times=args.times)
    worse = [row for row in rows if row["worse"]]
    if not worse:
        message = f"nothing got worse; {len(rows)} differences" if rows else "no difference"
        return Result(rows, CHANGES, message)
    error = SkillgenError(
        "got-worse",
        f"{len(worse)} of {len(rows)} differences are for the worse",
        where="; ".join(row["name"] for row in worse[:5]),
        exit_code=EVAL_FAILED,
    )
    return Result(rows, CHANGES, exit_code=EVAL_FAILED, error=error)
