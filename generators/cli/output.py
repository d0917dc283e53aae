"""What a command says: tables and diffs for people, one JSON object for programs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skillgen.cli.failure import failure
from skillgen.kernel.errors import OK, SkillgenError

if TYPE_CHECKING:
    from rich.console import Console

HEAD = 12  # lines of a new file that people see
STYLES = {
    "applicable": "green",
    "applied": "bold green",
    "upstream": "cyan",
    "upgrade": "yellow",
    "refused": "red",
    "drift": "bold red",
    "candidate": "magenta",
    "clean": "green",
    "ok": "green",
    "edited": "yellow",
    "absent": "yellow",
    "problem": "red",
    "passed": "green",
    "failed": "bold red",
    "skipped": "yellow",
}


@dataclass
class Result:
    """The outcome of one command."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    columns: tuple[str, ...] = ()  # of the table for people
    message: str = ""  # a last line for people
    diff: str = ""
    exit_code: int = OK
    error: SkillgenError | None = None  # a failure that has rows to show, e.g. of an eval


def emit(args: argparse.Namespace, result: Result, as_json: bool) -> int:
    """Print a result; its exit code."""
    if as_json:
        try:
            _print_json(args, result.exit_code, result.rows, result.error)
        except ValueError as error:
            return emit_error(args, failure(error), True)
        return result.exit_code
    console = _console(stderr=False)
    if result.diff:
        _show_diff(console, result.diff)
    if result.rows and result.columns:
        console.print(_table(result.rows, result.columns))
    if result.message:
        console.print(result.message, markup=False, highlight=False, emoji=False, soft_wrap=True)
    if result.error:
        return emit_error(args, result.error, False)
    return result.exit_code


def emit_error(args: argparse.Namespace, error: SkillgenError, as_json: bool) -> int:
    """Print a failure; its exit code."""
    if as_json:
        _print_json(args, error.exit_code, [], error)
        return error.exit_code
    print(f"skillgen: {error.code}: {error.message}", file=sys.stderr)
    for name in ("where", "hint"):
        if text := getattr(error, name):
            print(f"  {name}: {text}", file=sys.stderr)
    return error.exit_code


@contextmanager
def progress(title: str, *, quiet: bool) -> Iterator[Callable[..., None]]:
    """Show that something is going on, on a terminal's stderr; yields `advance(done, total, title)`."""

    def silent(done: int, total: int, title: str | None = None) -> None:
        pass

    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int, title: str | None = None) -> None:
            bar.update(task, completed=done, total=total or None, description=title)

        yield advance


def _print_json(
    args: argparse.Namespace, exit_code: int, rows: list[dict[str, Any]], error: SkillgenError | None
) -> None:
    answer = {
        "command": args.command,
        "target": getattr(args, "target", None),
        "ok": exit_code == OK,
        "exit_code": exit_code,
        "rows": rows,
        "error": error.as_json() if error else None,
    }
    print(json.dumps(answer, indent=1, allow_nan=False))


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 140
    return Console(stderr=stderr, width=width, soft_wrap=False)


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(text := _cell(row.get(column)), style=STYLES.get(text, "")) for column in columns))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, (list, tuple)):
        return "" if not value else f"{value[0]} (+{len(value) - 1})" if len(value) > 1 else str(value[0])
    return "" if value is None else str(value)


def _show_diff(console: Console, diff: str) -> None:
    """The diff in colours; of a long new file only its head, below the copyright header."""
    from rich.text import Text

    shown = 0
    new = header = False
    for line in diff.split("\n")[:-1]:
        if line.startswith("diff --git "):
            _show_rest(console, shown)
            shown, new = 0, False
        new = new or line.startswith("new file mode")
        body = new and line.startswith("+") and not line.startswith("+++ ")
        header = body and not shown and (line.startswith("+#") or (header and line == "+"))
        if header:
            continue
        shown += body
        if body and shown > HEAD:
            continue
        bold = line.startswith(("diff --git ", "--- ", "+++ "))
        style = "bold" if bold else {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console.print(Text(line, style=style), soft_wrap=True)
    _show_rest(console, shown)


def _show_rest(console: Console, shown: int) -> None:
    if shown > HEAD:
        console.print(f"... {shown - HEAD} more lines of this new file: --output FILE has them", style="dim")
