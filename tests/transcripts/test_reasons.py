"""Whatever scan says of a release, the pages of the skill explain it, and a plan of what is refused says it again."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.engine import registry
from skillgen.kernel import resources

RELEASES = Path(os.environ.get("SKILLGEN_RELEASES", "/nonexistent"))
NAMES = sorted(path.name for path in RELEASES.glob("*-*")) or ["none"]
Row = dict[str, Any]


def explained(technique: str) -> dict[str, set[str]]:
    """Reasons with the outcomes that the page gives them."""
    page = resources.path(f"skills/{technique}/references/outcomes.md").read_text(encoding="utf-8")
    (head,) = re.findall(r"^\|(?:.+\|)? reason \|.+$", page, re.MULTILINE)
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    table = page.partition(f"{head}\n")[2].partition("\n\n")[0].splitlines()[1:]
    found: dict[str, set[str]] = {}
    for line in table:
        cells = dict(zip(columns, (cell.strip(" `") for cell in line.strip("|").split(" | ")), strict=True))
        found.setdefault(cells["reason"], set()).add(cells["outcome"])
    return found


@pytest.mark.parametrize("technique", registry.names())
def test_the_page_names_the_outcomes_that_the_engine_knows(technique: str) -> None:
    told = explained(technique)
    assert {"patched-by-skillgen": {"applied"}, "anchor-moved": {"drift"}}.items() <= told.items()


@pytest.mark.parametrize("release", NAMES)
def test_every_verdict_on_a_release_is_explained(release: str, capsys: pytest.CaptureFixture[str]) -> None:
    if release == "none":
        pytest.skip("SKILLGEN_RELEASES names no folder of unpacked releases")

    def said(*words: str) -> Row:
        capsys.readouterr()
        main([*words, "--json"])
        answer: Row = json.loads(capsys.readouterr().out)
        return answer

    rows = said("scan", str(RELEASES / release))["rows"]
    assert rows
    pages = {row["technique"]: explained(row["technique"]) for row in rows}
    assert [r for r in rows if r["outcome"] not in pages[r["technique"]].get(r["reason"], ())] == []
    first = {(r["technique"], r["reason"]): r for r in rows if r["outcome"] == "refused"}
    for (technique, reason), row in first.items():
        answer = said("plan", technique, str(RELEASES / release), "--family", row["family"])
        assert (answer["exit_code"], answer["error"]["code"]) == (3, reason)
        assert answer["error"]["where"] and row["family"] in answer["error"]["message"]
