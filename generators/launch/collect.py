"""What a run left in its folder: rows as they come, the record of rank 0, the last lines of every rank."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillgen.kernel.errors import EVAL_FAILED, SkillgenError

Progress = Callable[[dict[str, Any]], None]
TAIL = 12  # last lines of each log that are shown
LOGS = ("torchrun.log", "slurm.log")  # where torchrun itself, and what started it, speak


@dataclass(frozen=True)
class Ending:
    """Why a run did not come to its own end."""

    code: str
    what: str  # after "the 4 ranks ..."


class Teller:
    """Passes on each row of `progress.jsonl` once."""

    def __init__(self, work: Path, progress: Progress | None) -> None:
        self.path, self.progress, self.told = work / "progress.jsonl", progress, 0

    def __call__(self) -> None:
        if self.progress is None:
            return
        lines = self.path.read_text().splitlines(keepends=True)
        complete = [line for line in lines if line.endswith("\n")]
        for line in complete[self.told :]:
            self.progress(json.loads(line))
        self.told = len(complete)


def collect(work: Path, ending: Ending | None, ranks: int) -> tuple[dict[str, Any], SkillgenError | None]:
    """What rank 0 wrote, with a failed row if the run did not come to its own end; an error if no case had begun."""
    result = work / "result.json"
    record: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {"running": "start-up"}
    begun = "rows" in record
    record = {"rows": [], "kinds": [], "stand_ins": [], "environment": {}} | record
    if ending is None and record["running"] is not None:
        ending = Ending("eval-died", "ended with exit code 0")
    if ending is None:
        return record, None
    message = f"the {ranks} ranks {ending.what}, during {record['running'] or 'the end'}"
    tail = last_lines(work)
    died = {"family": "all", "variant": "", "kind": "run", "name": record["running"] or "end", "status": "failed"}
    record["rows"].append(died | {"seconds": 0, "reason": message, "traceback": tail})
    return record, None if begun else SkillgenError(ending.code, message, hint=tail, exit_code=EVAL_FAILED)


def last_lines(work: Path) -> str:
    """The last lines of every rank's error output, or of what started the ranks where none wrote any."""
    parts = []
    logs = work.glob("logs/**/attempt_*/*/stderr.log")
    for path in sorted(logs, key=lambda path: (path.parent.parent, int(path.parent.name))):
        lines = tail(path)
        if lines:
            node = re.fullmatch(r"node(\d+)", path.relative_to(work).parts[1])  # a job's; ranks are counted on each
            where = f"node {node[1]}, local rank" if node else "rank"
            parts.append("\n".join([f"{where} {path.parent.name}, last lines:", *lines]))
    if not parts:
        parts = [line for name in LOGS if (work / name).is_file() for line in tail(work / name)]
    return "\n".join(parts)


def tail(path: Path) -> list[str]:
    """The last lines of a log that say something."""
    return [line for line in path.read_text(errors="replace").splitlines() if line.strip()][-TAIL:]
