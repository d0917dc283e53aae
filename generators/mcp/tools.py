"""What `skillgen mcp` serves: commands with the arguments of the command line, and the types of their rows."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from skillgen.cli.options import names as option_names
from skillgen.cli.output import HEAD
from skillgen.cli.parser import build_parser
from skillgen.kernel.model import Outcome
from skillgen.kernel.product import beside

JSON = dict[str, Any]
PLAN = ("technique", "target", "family", *option_names(), "no_lint")
EVAL = ("kind", "nproc", "backend", "report", "probe", "mutate", "baseline", "python", "timeout", beside().option)


def _object(**properties: JSON) -> JSON:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(item: JSON) -> JSON:
    return {"type": "array", "items": item}


def _enum(*values: str) -> JSON:
    return {"type": "string", "enum": list(values)}


def _with(row: JSON, **properties: JSON) -> JSON:
    return _object(**{**row["properties"], **properties})


TEXT: JSON = {"type": "string"}
COUNT: JSON = {"type": "integer"}
SITE = _object(
    technique=TEXT,
    family=TEXT,
    outcome=_enum(*(outcome.value for outcome in Outcome)),
    reason={**TEXT, "description": "a fixed word"},
    detail=TEXT,
    evidence={**_list(TEXT), "description": "path:line, relative to the target"},
    plannable={"type": "boolean"},
    notes=_list(TEXT),
)
PLANNED = _with(SITE, changed_lines=COUNT, edited_code_lines=COUNT, edited_text_lines=COUNT, files=_list(TEXT))
PATCH = _object(
    technique=TEXT,
    family=TEXT,
    state=_enum("applied", "edited-since", "missing", "no-receipt"),
    pack_version={"type": ["string", "null"]},
    files=_list(_object(path=TEXT, state=TEXT)),
)
CASE = _object(
    family=TEXT,
    kind=TEXT,
    name=TEXT,
    status=_enum("passed", "failed", "skipped"),
    seconds={"type": "number"},
    reason=TEXT,
)
ERROR = _object(code=TEXT, message=TEXT, where=TEXT, hint=TEXT)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One command as a tool."""

    arguments: tuple[str, ...]
    row: JSON
    about: str  # what the help of the command does not say
    writes: bool = False  # into the target
    runs: bool = False  # the target's code
    removes: bool = False
    repeats: bool = True  # a second call changes nothing more

    @property
    def needs(self) -> tuple[str, ...]:
        """Options without which the server refuses it."""
        return ("--allow-write",) * self.writes + ("--allow-run",) * self.runs


TOOLS = {
    "list": Tool(arguments=(), row=_object(technique=TEXT, summary=TEXT), about=""),
    "scan": Tool(arguments=("target", "technique", "family"), row=SITE, about="Start here."),
    "plan": Tool(
        arguments=(*PLAN, "output"),
        row=PLANNED,
        about=f"`diff` has all edits and {HEAD} lines of each new file; `output`, a file to be made, gets everything.",
    ),
    "apply": Tool(
        arguments=(*PLAN, "allow_dirty"), row=PLANNED, about="Call plan first, and read its diff.", writes=True
    ),
    "status": Tool(arguments=("target",), row=_with(PATCH, edited=_list(TEXT)), about=""),
    "revert": Tool(
        arguments=("technique", "target", "family"),
        row=_with(PATCH, state=_enum("reverted")),
        about="Only what apply wrote.",
        writes=True,
        removes=True,
    ),
    "eval": Tool(
        arguments=("technique", "target", "family", *EVAL),
        row=CASE,
        about="Runs the target's own code. May take minutes: --kind narrows it.",
        runs=True,
        removes=True,
        repeats=False,
    ),
}


@cache
def _parser(name: str) -> argparse.ArgumentParser:
    commands = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    parser: argparse.ArgumentParser = commands.choices[name]
    return parser


def _actions(name: str) -> list[argparse.Action]:
    """The arguments of a tool as the command's parser has them."""
    return [action for action in _parser(name)._actions if action.dest in TOOLS[name].arguments]


def describe(name: str) -> str:
    """What the tool does, and with which options the server has to be started."""
    tool = TOOLS[name]
    needs = f"Refused unless the server was started with {' '.join(tool.needs)}." if tool.needs else ""
    return " ".join(filter(None, (_parser(name).description, tool.about, needs)))


def input_schema(name: str, pythons: list[str]) -> JSON:
    """The arguments of a tool; `pythons` are those that an eval may be run with."""
    actions = _actions(name)
    properties = {action.dest: _schema(action) for action in actions}
    if "python" in properties:
        properties["python"]["enum"] = pythons
    required = [action.dest for action in actions if action.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(action: argparse.Action) -> JSON:
    schema: JSON = {"type": "boolean" if action.nargs == 0 else _kind(action.type)}
    if action.choices:
        schema["enum"] = list(action.choices)
    if isinstance(action, argparse._AppendAction):
        schema = _list(schema)
    return {**schema, "description": action.help or ""}


def _kind(convert: Any) -> str:
    """What a converter makes of a word: the class itself, or what the function is annotated to return."""
    made = convert if isinstance(convert, type) else getattr(convert, "__annotations__", {}).get("return", "str")
    return {"int": "integer", "float": "number"}.get(made if isinstance(made, str) else made.__name__, "string")


def output_schema(name: str) -> JSON:
    """What every tool answers: the object that `--json` prints, with the rows of this command."""
    answer = _object(
        command=TEXT,
        target={"type": ["string", "null"]},
        ok={"type": "boolean"},
        exit_code={**COUNT, "description": "0 done, 1 an eval failed, 2 usage, 3 refused, 4 drift, 5 conflict, 6 I/O"},
        rows=_list(TOOLS[name].row),
        error={"anyOf": [ERROR, {"type": "null"}]},
    )
    if name == "plan":
        answer["properties"]["diff"] = {**TEXT, "description": "empty where nothing is to be done"}
    return answer


def words(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """The command line: a value never becomes an option, whatever it begins with."""
    options: list[str] = []
    values: list[str] = []
    for action in _actions(name):
        value = arguments.get(action.dest)
        if value is None:
            continue
        if not action.option_strings:
            values.append(value)
        elif isinstance(action, argparse.BooleanOptionalAction):
            options.append(action.option_strings[0 if value else 1])
        elif action.nargs == 0:
            options += action.option_strings[:1] if value else []
        else:
            options += [f"{action.option_strings[0]}={one}" for one in (value if isinstance(value, list) else [value])]
    return [name, *options, "--json", *(["--", *values] if values else [])]


def shortened(diff: str) -> str:
    """A diff to be read: all of it but the later lines of long new files."""
    return "".join(_head(part) for part in re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE))


def _head(part: str) -> str:
    lines = part.splitlines(keepends=True)
    body = next((number for number, line in enumerate(lines, 1) if line.startswith("@@ ")), len(lines))
    rest = len(lines) - body - HEAD
    if not re.match(r"diff --git .*\nnew file mode ", part) or rest <= 0:
        return part
    return "".join(lines[: body + HEAD]) + f"... {rest} more lines of this new file\n"
