"""The report: verdict in one line, failures first, plots without anything fetched from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from skillgen.report import record as report
from tests.report.records import COST, record, row


@pytest.mark.parametrize(
    ("statuses", "ok", "verdict"),
    [
        (["passed", "skipped"], True, "PASS: 1 passed, 0 failed, 1 skipped"),
        (["passed", "failed"], False, "FAIL: 1 passed, 1 failed, 0 skipped"),
        (["skipped"], False, "NOTHING PROVEN: 0 passed, 0 failed, 1 skipped"),
        ([], False, "NOTHING PROVEN"),
    ],
)
def test_verdict(statuses: list[str], ok: bool, verdict: str) -> None:
    made = record(*map(row, statuses))
    assert made["ok"] is ok and made["verdict"].startswith(verdict) and "\n" not in made["verdict"]


def test_a_family_that_was_skipped_as_a_whole_is_not_proven() -> None:
    made = record(row("passed"), row("skipped", family="other"))
    assert not made["ok"] and made["verdict"].startswith("NOTHING PROVEN for other: 1 passed, 0 failed, 1 skipped")


def test_what_fell_is_said_below_the_verdict() -> None:
    made = record(COST)
    said = "f, case, per rank: patches 100 to 60 (60%), activations 16 to 8 MB (50%), busy time 2 to 1 ms (50%)"
    assert made["gains"] == [said]
    for text in (report.markdown(made), report.page(made)):
        assert text.index(made["verdict"]) < text.index(said) < text.index("Cost")
    assert not record(row("failed", kind="cost", numbers=COST["numbers"]))["gains"]


def test_page_fits_a_phone() -> None:
    page = report.page(record(COST))
    assert '<meta name="viewport"' in page and re.search(r"<div><table>.*</table></div>", page, re.DOTALL)


def test_a_broken_runtime_is_named() -> None:
    assert "broken on purpose (no-reduce)" in record(row("failed"), mutate="no-reduce")["verdict"]


def test_failures_come_before_everything_else() -> None:
    made = record(row("passed", "good"), row("skipped", "absent"), row("failed", "bad"), COST)
    for text in (report.markdown(made), report.page(made)):
        assert text.index("why bad") < text.index("why absent") < text.index("Cost") < text.index("good")


def test_page_is_self_contained_and_escaped() -> None:
    page = report.page(record(row("failed", "<script>"), COST))
    assert not re.search(r"""(src|href)\s*=|@import|url\(""", page)
    assert "<script>" not in page and page.count("<svg") == 3


def test_bars_are_as_high_as_their_values() -> None:
    heights = [
        float(h)
        for h in re.findall(
            r'height="([\d.]+)" fill="[^"]+"><title>', report.bars("t", {"a": [100, 50], "b": [25, 0]})
        )
    ]
    assert heights == [120, 60, 30, 0]


def test_worst_check_is_the_one_nearest_to_its_limit() -> None:
    assert report.worst(row("passed", checks={"a": (1, 10), "b": (9, 10), "c": (0, 0)})) == "b 9 of 10"


def test_a_comparison_is_a_table_of_its_arms() -> None:
    numbers = {
        "bytes over needed, ours": [1.0, 1.04],
        "bytes over needed, upstream": [2.5, 2.25],
        "ours, mean and worst": [[1.001, 1.01], None],
        "upstream, mean and worst": [[1.2, 1.7], None],
        "collectives, ours": [["all_gather"], ["all_gather"]],
    }
    made = record(row("passed", kind="compare", numbers=numbers))
    assert report.comparison.table(made["rows"][0]) == [
        ["", "ours", "upstream"],
        ["bytes over needed", "1.04", "2.5"],
        ["mean and worst", "1.001, 1.01", "1.2, 1.7"],
        ["collectives", "all_gather", ""],
    ]
    assert "| bytes over needed | 1.04 | 2.5 |" in report.markdown(made)
    assert "<td>bytes over needed<td>1.04<td>2.5</tr>" in report.page(made)


def test_costs_of_another_form_are_judged_by_their_checks_alone() -> None:
    made = record(row("passed", kind="cost", numbers={"plans per second": [5]}, checks={"bytes": (1, 2)}))
    assert made["ok"] and made["gains"] == [] and "Cost:" not in report.markdown(made) + report.page(made)


def test_the_targets_own_tests_are_counted_but_prove_no_family() -> None:
    numbers = {
        "before": [{"passed": 1430, "failed": 2}],
        "after": [{"passed": 1433, "failed": 2}],
        "newly failing": [[]],
    }
    own = row("passed", kind="upstream-tests", family="all", numbers=numbers)
    made = record(own, row("passed"))
    assert made["ok"] and "1,430 passed, 2 failed without the patch; 1,433 passed" in made["gains"][0]
    assert record(row("skipped", family="all"), row("passed"))["ok"]
    assert not record(own, row("skipped"))["ok"]


def test_three_files(tmp_path: Path) -> None:
    report.write(record(COST), tmp_path / "deep" / "folder")
    assert json.loads((tmp_path / "deep" / "folder" / "report.json").read_text())["counts"]["passed"] == 1
    assert "| patches, sharded | 40 | 60 |" in (tmp_path / "deep" / "folder" / "report.md").read_text()
