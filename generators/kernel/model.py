"""The words of the engine as data: outcomes, rows, edits, changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Outcome(str, Enum):
    """The verdict on one site."""

    APPLICABLE = "applicable"
    APPLIED = "applied"
    UPSTREAM = "upstream"
    UPGRADE = "upgrade"
    REFUSED = "refused"
    DRIFT = "drift"
    CANDIDATE = "candidate"


@dataclass(frozen=True)
class Row:
    """One line of `scan`: what a technique can do at one site, and why."""

    technique: str
    family: str
    outcome: Outcome
    reason: str  # machine-readable slug
    detail: str = ""  # one sentence for a person
    evidence: tuple[str, ...] = ()  # "path:line", relative to the target root
    plannable: bool = False
    notes: tuple[str, ...] = ()  # e.g. "no-test-tree"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value}


@dataclass(frozen=True)
class Change:
    """One file before and after, as bytes; None where there is no file. `path` is posix, relative to the root."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One change to one file. `path` is posix, relative to the target root."""

    path: str


@dataclass(frozen=True, kw_only=True)
class AddFile(Edit):
    """Create a file. Done already if it is there with the same content."""

    content: str


@dataclass(frozen=True, kw_only=True)
class AddImport(Edit):
    """`from module import names` at its sorted place in its section, merged into an existing import."""

    module: str
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RemoveImport(Edit):
    """Take `names` out of the top level's `from module import`, along with the statement if no name is left."""

    module: str
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AddField(Edit):
    """Add dataclass field lines to class `cls`, after field `after`, else after its last field.

    Code that begins with a comment line is set off by blank lines, as a group of its own.
    """

    cls: str
    code: str
    after: str | None = None


@dataclass(frozen=True, kw_only=True)
class AddParameter(Edit):
    """Add a parameter to the signature of `function` (qualified name), after parameter `after`."""

    function: str
    code: str
    after: str


@dataclass(frozen=True, kw_only=True)
class PassKeyword(Edit):
    """Add keyword `code` ("name=value") to the one call of `call` (dotted) in `function`, after keyword `after`.

    Where the call passes `instead` ("name=old value") already, the value is replaced in its place. `within` narrows
    the search as in ReplaceCallee.
    """

    function: str
    call: str
    code: str
    after: str
    instead: str | None = None
    within: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReplaceCallee(Edit):
    """In `function`, let the one call of `call` (dotted name) call `callee` instead, arguments untouched.

    `within` narrows the search to the statement whose code starts with it, where `call` occurs more than once.
    """

    function: str
    call: str
    callee: str
    within: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReplaceExpression(Edit):
    """In the function or class `scope`, its decorators included, put `new` where the one expression `old` stands."""

    scope: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class ReplaceWords(Edit):
    """In the docstring of the function or class `scope`, replace the words `old`, however they are wrapped.

    A line break in `new` goes on at the indentation of the line after the old words, or of the line that they are on.
    """

    scope: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class AddContext(Edit):
    """Let the one `with` statement of `function` that enters the call `call` (dotted) enter `code` right before it."""

    function: str
    call: str
    code: str


@dataclass(frozen=True, kw_only=True)
class InsertBefore(Edit):
    """Insert statements before the one statement of `function` that matches `anchor`.

    An anchor is either a statement's code ("self.x = x", compared as structure, formatting ignored), or
    "call:dotted.name", the one statement that contains this call (by its origin: "call:torch.cat" also finds `cat`
    imported from torch), or "if:condition", the one `if` of this condition. Comments right above the anchor stay with
    it. Code has levels of four spaces; further line breaks at its ends, beyond the one that a triple quote brings, are
    blank lines.
    """

    function: str
    anchor: str
    code: str


@dataclass(frozen=True, kw_only=True)
class InsertAfter(Edit):
    """Insert statements after the one statement of `function` that matches `anchor` (see InsertBefore)."""

    function: str
    anchor: str
    code: str


@dataclass(frozen=True, kw_only=True)
class ReplaceStatement(Edit):
    """Replace the one statement of `function` that matches `anchor` (see InsertBefore) by `code`.

    Here an anchor of several statements matches where they follow each other.
    """

    function: str
    anchor: str
    code: str


@dataclass(frozen=True, kw_only=True)
class AddItem(Edit):
    """Add item `code` to the list or parenthesised tuple that the top level assigns to `name`, after item `after`."""

    name: str
    code: str
    after: str


@dataclass(frozen=True, kw_only=True)
class AddMethod(Edit):
    """Add a method to class `cls`, after method `after`."""

    cls: str
    code: str
    after: str


@dataclass(frozen=True, kw_only=True)
class AddDefinition(Edit):
    """Add a top-level function or class before the top-level definition `before`."""

    before: str
    code: str


@dataclass(frozen=True, kw_only=True)
class ReplaceText(Edit):
    """Replace whole lines `old` of a text file, which stand there once, by the lines `new`.

    A line `...` of `old` stands for any lines, up to the first that match what follows it.
    """

    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class AddText(Edit):
    """Insert `text` as paragraphs before the line `before` of a text file (Markdown), or at the end if it is None."""

    text: str
    before: str | None = None


@dataclass(frozen=True)
class FamilyPlan:
    """Everything one family's patch does to a target: pure data."""

    technique: str
    family: str
    edits: tuple[Edit, ...] = ()
    notes: tuple[str, ...] = field(default=())
    verified: str = ""  # what the anchors were last verified against, for the report of a drift
