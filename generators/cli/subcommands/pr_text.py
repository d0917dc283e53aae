"""Write the pull request for a patch: title, labels and body, with figures of its newest passing report only."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from skillgen.cli.output import Result

if TYPE_CHECKING:
    from skillgen.cli.found import Add

EPILOG = """\
The patch has to be applied, and a report has to be of exactly this: technique, product, version, commit and patched
code. The newest one of each backend counts, and has to be a pass.

exit codes: 0 written, 1 the newest report failed, 2 usage, 3 not applied or no report of this patch, 6 no such file
"""


def register(command: Add) -> None:
    """Add the command's parser."""
    parser = command("pr-text", "write the pull request for an applied patch", "technique", "target")
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--report",
        action="append",
        metavar="DIR",
        help="a report of `skillgen eval`, or a folder of reports (repeatable; default: reports)",
    )
    parser.add_argument("--output", metavar="FILE", help="write the body to FILE, for gh pr create --body-file")


def run(args: argparse.Namespace) -> Result:
    """Compose the text; the answer for programs also says which reports were set aside, and why."""
    from skillgen.engine import registry
    from skillgen.kernel.target import discover
    from skillgen.report.pull_request import body as pr_body
    from skillgen.report.pull_request import patch as pr_patch
    from skillgen.report.pull_request import proof as pr_proof

    registry.load(args.technique)
    patch = pr_patch.applied(discover(args.target), args.technique)
    used, aside = pr_proof.choose(patch, args.report or [])
    text = pr_body.compose(patch, used)
    row = {
        **text,
        "reports": [str(report.path) for report in used],
        "set_aside": [{"report": str(report.path), "why": report.why} for report in aside],
        "open_boxes": [line.strip() for line in text["body"].splitlines() if line.strip().startswith("- [ ]")],
    }
    labels = f"labels: {text['labels']}\n" if text["labels"] else ""
    if not args.output:
        return Result([row], (), f"{text['title']}\n{labels}\n{text['body']}".rstrip("\n"))
    Path(args.output).write_text(text["body"], encoding="utf-8")
    words = ["gh", "pr", "create", "--title", text["title"], "--body-file", args.output]
    words += ["--label", text["labels"]] if text["labels"] else []
    left = f"{len(row['open_boxes'])} boxes are left for you to tick\n" if row["open_boxes"] else ""
    return Result([row], (), f"the body is in {args.output}\n{left}{shlex.join(words)}")
