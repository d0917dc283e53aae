"""`skillgen report`: what changed between two reports, what of it is worse, and what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.report import record as report
from tests.cli.trees import Skillgen
from tests.report.records import COST, record, row

Changed = Callable[[Callable[[dict[str, Any]], object]], Path]
PARITY = row("passed", "same features", checks={"features": (1e-7, 2e-5), "gradients": (1e-6, 2e-5)})
NUMBERS = {**COST["numbers"], "step ms, replicated": [2.0, 2.0], "planning ms": [0.1, 0.2]}
NUMBERS["bytes received, sharded"] = [0, 0]


@pytest.fixture
def first(tmp_path: Path) -> Path:
    whole = {"target": "/nowhere", "families": ["f"], "kinds": ["parity", "cost"]}
    report.write(record(PARITY, row("skipped", "strided"), COST | {"numbers": NUMBERS}, **whole), tmp_path / "a")
    return tmp_path / "a"


@pytest.fixture
def second(first: Path, tmp_path: Path) -> Changed:
    """A copy of the first report after a change, with the verdict that its rows earn."""

    def make(change: Callable[[dict[str, Any]], object]) -> Path:
        record = copy.deepcopy(report.read(first))
        change(record)
        patched = record["patched"]
        report.finish(record)["patched"] = patched
        report.write(record, tmp_path / "b")
        return tmp_path / "b"

    return make


def test_no_difference(skillgen: Skillgen, first: Path, second: Changed) -> None:
    code, answer = skillgen("report", "compare", first, second(lambda r: None))
    assert code == 0 and answer["rows"] == []


def test_a_difference_that_is_not_worse(skillgen: Skillgen, first: Path, second: Changed) -> None:
    def change(record: dict[str, Any]) -> None:
        record["environment"]["versions"]["torch"] = "3"
        families = {"f": "0123456789abcdef"}
        record["patched"] = {"product": "p", "version": "1", "kind": "tree", "commit": None, "families": families}
        record["rows"][0]["checks"]["features"] = [1e-5, 2e-5]
        record["rows"][1] |= {"status": "passed", "reason": ""}
        record["rows"][2]["numbers"] |= {"patches, sharded": [50, 50], "patches, replicated": [300, 100]}

    code, answer = skillgen("report", "compare", first, second(change))
    assert code == 0 and not any(row["worse"] for row in answer["rows"])
    assert {(row["what"], row["name"]): (row["before"], row["after"], row["change"]) for row in answer["rows"]} == {
        ("verdict", "verdict"): (
            "PASS: 2 passed, 0 failed, 1 skipped on 2 ranks (gloo), 3 s",
            "PASS: 3 passed, 0 failed, 0 skipped on 2 ranks (gloo), 3 s",
            None,
        ),
        ("environment", "versions"): ("torch 2", "torch 3", None),
        ("environment", "patched code of f"): (None, "0123456789ab", None),
        ("environment", "target"): ("/nowhere", "p, /nowhere", None),
        ("case", "f, parity: strided"): ("skipped", "passed", None),
        ("check", "f, parity: same features: features"): ("1e-07 of 2e-05", "1e-05 of 2e-05", None),
        ("cost", "f, cost: case: patches, replicated"): (100, 300, "+200.0%"),
        ("cost", "f, cost: case: patches, sharded"): (60, 50, "-16.7%"),
    }


def set_check(name: str, value: list[float]) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["rows"][0]["checks"].update({name: value})


def set_number(name: str, value: list[float]) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["rows"][2]["numbers"].update({name: value})


FAILS = {"status": "failed", "reason": "no"}


@pytest.mark.parametrize(
    ("change", "worse"),
    [
        (lambda r: r["rows"][0].update(FAILS), {"verdict", "f, parity: same features"}),
        (lambda r: r["rows"][0].update(status="skipped", reason="no"), {"f, parity: same features"}),
        (lambda r: r["rows"].pop(0), {"f, parity: same features"}),
        (lambda r: r["rows"].append(row("failed", "new")), {"verdict", "f, parity: new"}),
        (lambda r: r["rows"][1].update(FAILS), {"verdict", "f, parity: strided"}),
        (lambda r: r["rows"][0]["checks"].pop("features"), {"f, parity: same features: features"}),
        (set_check("features", [1e-4, 1e-3]), {"f, parity: same features: features"}),
        (set_number("patches, sharded", [40, 64]), {"f, cost: case: patches, sharded"}),
        (set_number("activation bytes, sharded", [9e6, 0]), {"f, cost: case: activation bytes, sharded"}),
        (set_number("bytes received, sharded", [0, 1]), {"f, cost: case: bytes received, sharded"}),
        (lambda r: r["rows"][2]["numbers"].pop("patches, sharded"), {"f, cost: case: patches, sharded"}),
    ],
)
def test_what_is_worse(
    change: Callable[[dict[str, Any]], object], worse: set[str], skillgen: Skillgen, first: Path, second: Changed
) -> None:
    code, answer = skillgen("report", "compare", first, second(change))
    assert code == 1 and answer["error"]["code"] == "got-worse"
    told = [row["worse"] for row in answer["rows"]]
    assert told == sorted(told, reverse=True)
    assert {row["name"] for row in answer["rows"] if row["worse"]} == worse
    assert skillgen("report", "compare", second(lambda r: None), second(lambda r: None))[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["rows"].pop(1),
        set_check("features", [1e-5, 1e-3]),
        set_number("patches, sharded", [40, 62]),
        set_number("patches, replicated", [1000, 1000]),
        set_number("step ms, sharded", [50.0, 50.0]),
        set_number("planning ms", [9.0, 9.0]),
    ],
)
def test_what_is_not_worse(
    change: Callable[[dict[str, Any]], object], skillgen: Skillgen, first: Path, second: Changed
) -> None:
    code, answer = skillgen("report", "compare", first, second(change))
    assert code == 0 and answer["rows"]


@pytest.mark.parametrize(
    ("options", "number", "code"),
    [
        (["--times"], "step ms, sharded", 1),
        (["--times"], "planning ms", 1),
        (["--times"], "step ms, replicated", 0),
        (["--times", "--tolerance", "7000"], "step ms, sharded", 0),
        (["--tolerance", "5000"], "patches, sharded", 0),
        (["--tolerance", "0"], "patches, sharded", 1),
    ],
)
def test_tolerance_and_times(
    options: list[str], number: str, code: int, skillgen: Skillgen, first: Path, second: Changed
) -> None:
    later = second(set_number(number, [61.0, 61.0]))
    assert skillgen("report", "compare", first, later, *options)[0] == code


def test_two_cases_of_one_name_are_two(skillgen: Skillgen, first: Path, second: Changed) -> None:
    code, answer = skillgen("report", "compare", first, second(lambda r: r["rows"].append(PARITY)))
    assert code == 0 and [row["name"] for row in answer["rows"]] == ["verdict", "f, parity: same features (2)"]


def test_reports_of_different_things_are_not_compared(skillgen: Skillgen, first: Path, second: Changed) -> None:
    code, answer = skillgen("report", "compare", first, second(lambda r: r.update(technique="other")))
    assert code == 2 and answer["error"]["code"] == "not-comparable"
    one, other = (
        {"product": product, "version": "1", "kind": "tree", "commit": None, "families": {}}
        for product in ("megatron-bridge", "automodel")
    )
    bridge = second(lambda r: r.update(patched=one)).rename(first.parent / "c")
    code, answer = skillgen("report", "compare", bridge, second(lambda r: r.update(patched=other)))
    assert code == 2 and answer["error"]["code"] == "not-comparable"


def test_what_cannot_be_read(skillgen: Skillgen, first: Path, tmp_path: Path) -> None:
    code, answer = skillgen("report", "compare", first, tmp_path / "none")
    assert (code, answer["error"]["code"]) == (6, "no-report") and "none" in answer["error"]["where"]
    (tmp_path / "x.json").write_text(json.dumps({"rows": []}))
    code, answer = skillgen("report", "compare", tmp_path / "x.json", first)
    assert (code, answer["error"]["code"]) == (2, "report-foreign") and answer["error"]["hint"]
    assert skillgen("report", "show", tmp_path / "x.json")[0] == 2
    assert skillgen("report", "compare", first, first, "--tolerance", "-1")[1]["error"]["code"] == "bad-tolerance"
    assert skillgen("report", "compare", first, first, "--tolerance", "nan")[1]["error"]["code"] == "bad-tolerance"


def test_people_get_text(first: Path, second: Changed, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "show", str(first)]) == 0
    said = capsys.readouterr().out
    assert "same features" in said and "PASS: 2 passed" in said and "versions: torch 2" in said
    assert main(["report", "compare", str(first), str(second(lambda r: r["rows"].pop(0)))]) == 1
    said, wrong = capsys.readouterr()
    assert "yes" in said and "got-worse" in wrong
    with pytest.raises(SystemExit):
        main(["report", "compare", "--help"])
    assert "1 something got worse" in capsys.readouterr().out


def test_a_report_of_an_ab_run_is_named(skillgen: Skillgen, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"kind": "ab", "flag": "a", "rows": []}))
    code, answer = skillgen("report", "show", tmp_path)
    error = answer["error"]
    assert (code, error["code"]) == (2, "report-foreign") and "A/B run (skillgen ab)" in error["message"]
    assert "report.md" in error["hint"]


def test_a_report_that_is_nested_too_deeply(skillgen: Skillgen, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("[" * 200_000)
    code, answer = skillgen("report", "show", tmp_path)
    assert (code, answer["error"]["code"]) == (2, "report-damaged") and "nested" in answer["error"]["message"]
