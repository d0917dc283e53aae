"""Which reports prove a patch as it stands: of its technique, its target and its code, and passed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import EVAL_FAILED, SkillgenError

if TYPE_CHECKING:
    from skillgen.report.pull_request.patch import Applied

FOLDER = "reports"  # where to look if no report is named


@dataclass(frozen=True)
class Found:
    """A report, and why it proves nothing of the patch; `why` is empty if it does."""

    path: Path
    record: dict[str, Any]
    why: str = ""


def choose(patch: Applied, places: Sequence[str]) -> tuple[list[Found], list[Found]]:
    """The newest report per backend that is of this patch, and what was set aside.

    Raises:
        SkillgenError: none is of this patch, or the newest failed.
    """
    found = [Found(path, record, why or unfit(patch, record)) for path, record, why in _reports(places)]
    newest: dict[str, Found] = {}
    for report in sorted(found, key=lambda report: str(report.record.get("finished"))):
        if not report.why:
            newest[report.record["backend"]] = report
    if not newest:
        raise _none(patch, found)
    for report in newest.values():
        if not report.record["ok"]:
            raise SkillgenError(
                "report-failed",
                f"the newest report of this patch is no pass: {report.record['verdict']}",
                where=str(report.path),
                hint="skillgen report show has the cases; a pull request waits until they pass",
                exit_code=EVAL_FAILED,
            )
    used = list(newest.values())
    older = [Found(r.path, r.record, r.why or "there is a newer one") for r in found if r not in used]
    return used, older


def unfit(patch: Applied, record: dict[str, Any]) -> str:
    """Why a report says nothing of this patch; empty if it is of it."""
    from skillgen.report.origin import digests

    target, judged = patch.target, record["patched"]
    if record["technique"] != patch.technique:
        return f"it is of {record['technique']}"
    if record["mutate"]:
        return f"the runtime was broken on purpose ({record['mutate']})"
    for name, here in (("product", target.product), ("version", target.version)):
        if judged.get(name) != here:
            return f"its target is of {name} {judged.get(name)}, and this one of {here}"
    if other := _commit(patch, judged.get("commit")):
        return other
    now = digests(target, patch.technique)
    asked = [family for family in record["families"] if family in now]
    if changed := [family for family in asked if judged["families"].get(family) != now[family]]:
        return f"the patched code of {', '.join(changed)} is not what it judged"
    return "" if asked else "it ran no family that is applied here"


def _commit(patch: Applied, then: str | None) -> str:
    """A checkout stands on the commit that was judged, or on later ones that hold the patch and nothing else."""
    from skillgen.report.origin import commit, git

    now = commit(patch.target)
    if now == then:
        return ""
    if now and then:
        between = git(patch.target, "diff", "--name-only", "--no-renames", "-z", then, now)
        if between is not None and set(between.split("\0")) - {""} <= patch.paths:
            return ""
    return f"its target is at commit {then}, and this one at {now}"


def _reports(places: Sequence[str]) -> Iterator[tuple[Path, dict[str, Any], str]]:
    """Path, record and what is wrong: one that was named has to be readable, one below a folder is set aside."""
    from skillgen.report.read import NAME, read

    if not places and not Path(FOLDER).is_dir():
        return
    for place in map(Path, places or [FOLDER]):
        nested = sorted(place.rglob(NAME)) if place.is_dir() and not (place / NAME).is_file() else []
        if not nested:
            yield place, read(place), ""
        for path in nested:
            try:
                yield path, read(path), ""
            except SkillgenError as error:
                yield path, {}, error.message


def _none(patch: Applied, found: Sequence[Found]) -> SkillgenError:
    from skillgen.report.pull_request.patch import eval_command

    run = f"{eval_command(patch.target, patch.technique)} --nproc 4 --report {FOLDER}/{patch.technique}"
    if not found:
        return SkillgenError("no-report", "no report was named, and there is none in reports/", hint=run)
    last = max(found, key=lambda report: str(report.record.get("finished")))
    return SkillgenError(
        "report-foreign",
        f"no report is of this patch: {last.why}",
        where="; ".join(str(report.path) for report in found[:5]),
        hint=f"run the eval on what is to be merged: {run}",
    )
