"""Reading a report back: what this version wrote, whole and in agreement with itself, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillgen.kernel.errors import SkillgenError
from skillgen.report import record as report
from tests.report.records import COST, record, row

WHOLE = {"target": "/nowhere", "families": ["f"], "kinds": ["parity"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    report.write(record(row("passed", checks={"a": (1.0, 2)}), COST, **WHOLE), tmp_path / "run")
    return tmp_path / "run"


def test_what_was_written_is_read(folder: Path) -> None:
    written = json.loads((folder / "report.json").read_text())
    assert report.read(folder) == report.read(folder / "report.json") == written
    assert written["schema"] == report.SCHEMA and written["pack_version"] and written["patched"] == {}


def test_what_is_no_number_in_json_is_written_as_a_word(tmp_path: Path) -> None:
    numbers = {"values": [float("nan"), float("inf")], "nested": [[1.5, float("nan")]]}
    report.write(record(row("passed", numbers=numbers), **WHOLE), tmp_path)
    assert report.read(tmp_path)["rows"][0]["numbers"] == {"values": ["nan", "inf"], "nested": [[1.5, "nan"]]}


def test_a_missing_report(tmp_path: Path) -> None:
    for place, sought in (
        (tmp_path, "report.json"),
        (tmp_path / "nowhere", "nowhere"),
        (tmp_path / "x.json", "x.json"),
    ):
        with pytest.raises(SkillgenError) as caught:
            report.read(place)
        assert caught.value.code == "no-report" and Path(caught.value.where).name == sought


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def apply(old: dict[str, Any]) -> dict[str, Any]:
        new = copy.deepcopy(old)
        change(new)
        return new

    return apply


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (changed(lambda r: r.pop("schema")), "report-foreign", "no schema number"),
        (changed(lambda r: r.update(schema=True)), "report-foreign", "no schema number"),
        (changed(lambda r: r.update(schema=99)), "report-foreign", "its schema is 99"),
        (lambda _: ["a", "list"], "report-foreign", "no schema number"),
        (changed(lambda r: r.pop("environment")), "report-damaged", "'environment'"),
        (changed(lambda r: r.update(nproc="2")), "report-damaged", "'nproc'"),
        (changed(lambda r: r.update(nproc=True)), "report-damaged", "'nproc'"),
        (changed(lambda r: r.update(rows=[3])), "report-damaged", "rows[0]: no object"),
        (changed(lambda r: r["rows"][1].pop("kind")), "report-damaged", "rows[1]: 'kind'"),
        (changed(lambda r: r["rows"][0].update(status="ok")), "report-damaged", "status 'ok'"),
        (changed(lambda r: r["rows"][0].update(checks={"a": [1]})), "report-damaged", "'checks'"),
        (changed(lambda r: r["rows"][0].update(numbers={"a": 1})), "report-damaged", "'numbers'"),
        (changed(lambda r: r["rows"][0].update(checks={"a": [3.0, 2]})), "report-damaged", "over its limit"),
        (changed(lambda r: r["rows"][0].update(status="failed")), "report-damaged", "its rows say"),
        (changed(lambda r: r.update(ok=False)), "report-damaged", "its rows say"),
    ],
)
def test_what_is_no_report_or_was_edited_is_refused(
    change: Callable[[dict[str, Any]], Any], code: str, said: str, folder: Path
) -> None:
    path = folder / "report.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(SkillgenError) as caught:
        report.read(folder)
    assert caught.value.code == code and said in caught.value.message
    assert caught.value.where == str(path) and caught.value.hint


def test_what_is_no_json_is_refused(folder: Path) -> None:
    (folder / "report.json").write_text('{"schema": 1,')
    with pytest.raises(SkillgenError, match="not JSON") as caught:
        report.read(folder)
    assert caught.value.code == "report-damaged"
    (folder / "report.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SkillgenError, match="not JSON"):
        report.read(folder)
