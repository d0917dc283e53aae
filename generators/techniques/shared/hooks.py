"""What a technique's optional modules `doctor` and `advise` answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from skillgen.kernel.errors import SkillgenError


class Check(NamedTuple):
    """A line of `doctor`."""

    check: str
    state: str  # ok, absent or problem
    found: str = ""
    means: str = ""


@dataclass(frozen=True)
class Advised:
    """What `advise` says: rows, the columns of them that people see, a last line, and why nothing suits."""

    rows: list[dict[str, Any]]
    columns: tuple[str, ...]
    message: str = ""
    error: SkillgenError | None = None
