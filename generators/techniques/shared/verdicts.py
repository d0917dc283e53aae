"""From what was found at one place to the row that `scan` shows of it: the same for every technique."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ParamSpec

from skillgen.kernel.errors import AnchorDrift, SkillgenError
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.source import SourceSyntaxError

if TYPE_CHECKING:
    from skillgen.kernel.target import Target
    from skillgen.techniques.shared.evidence import Fact

P = ParamSpec("P")
OURS = (Outcome.APPLIED, "patched-by-skillgen")
THEIRS = (Outcome.UPSTREAM, "upstream-has-it")
NEAREST = 3  # places that a drift names


def folded(
    technique: str, family: str, judge: Callable[P, Iterable[Row]], *args: P.args, **kwargs: P.kwargs
) -> list[Row]:
    """The rows of a family; where its anchor moved or a file of it cannot be parsed, the row that says so."""
    try:
        return list(judge(*args, **kwargs))
    except AnchorDrift as drift:
        notes = (f"sought: {drift.sought}", f"verified: {drift.verified}")
        near = drift.nearest or (drift.where,)
        return [Row(technique, family, Outcome.DRIFT, "anchor-moved", drift.message, near, notes=notes)]
    except SourceSyntaxError as error:
        return [Row(technique, family, Outcome.REFUSED, error.code, error.message, (error.where,))]


def drift(sought: str, where: str, verified: str, near: Iterable[Fact | str] = ()) -> AnchorDrift:
    """That an anchor is not where it was, with the nearest places."""
    return AnchorDrift(sought, where=where, verified=verified, nearest=places(near)[:NEAREST])


def places(facts: Iterable[Fact | str]) -> tuple[str, ...]:
    """`path:line` of each fact, once."""
    return tuple(dict.fromkeys(fact if isinstance(fact, str) else fact.where for fact in facts))


def test_tree_notes(target: Target) -> tuple[str, ...]:
    """The note that a patch comes without tests, where the target has none."""
    return () if target.folder(target.about.tests) else ("no-test-tree",)


def has_receipt(target: Target, technique: str, family: str) -> bool:
    """Whether our patch of a family was applied to this target."""
    from skillgen.ledger.receipts import file_name

    return (target.state_dir / file_name((technique, family))).is_file()


def unknown(family: str, known: Sequence[str]) -> SkillgenError:
    """That the technique has no family of this name."""
    return SkillgenError("unknown-family", f"no family is called {family!r}", hint=f"one of: {', '.join(known)}")


def absent(target: Target, message: str) -> SkillgenError:
    """That the target does not have the family."""
    return SkillgenError("family-absent", message, where=str(target.root))
