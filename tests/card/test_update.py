"""An update takes all of its reports and writes all of its files, or none; it keeps what shows more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from tests.card.packs import Run, cases, levels, report

PLACE = "proof/share-it/automodel-2.0.json"


def tree(pack: Path) -> dict[str, bytes]:
    return {p.relative_to(pack).as_posix(): p.read_bytes() for p in sorted(pack.rglob("*")) if p.is_file()}


def test_every_written_file_is_counted(pack: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(pack)
    main(["card", "update", "--pack", str(pack)])
    made = {name for name, data in tree(pack).items() if before.get(name) != data}
    assert f"{len(made)} files written" in capsys.readouterr().out
    main(["card", "update", "--pack", str(pack), report(runs, pack, "1.0", cases("f"))])
    assert "1 reports taken, 0 of 5 levels changed, 2 files written" in capsys.readouterr().out
    main(["card", "update", "--pack", str(pack), report(runs, pack, "1.0"), report(runs, pack, "2.0")])
    assert "2 reports taken, 1 of 5 levels changed, 4 files written" in capsys.readouterr().out
    main(["card", "update", "--pack", str(pack)])
    assert "0 reports taken, 0 of 5 levels changed, 0 files written" in capsys.readouterr().out


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_error_leaves_every_file_as_it_was(
    step: str, number: int, proven: Path, runs: Path, card: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (proven / "skills/share-it/config/card.yaml").chmod(0o640)
    before, names, done = tree(proven), sorted(proven.rglob("*")), []
    words = ["--label", "new", report(runs, proven, "1.0"), report(runs, proven, "2.0", backend="nccl", gpu=["H200"])]
    real = getattr(os, step)

    def fail(*args: Any, **options: Any) -> Any:
        done.append(args)
        if len(done) == number + 1:
            raise OSError(28, "No space left on device")
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        assert card("update", *words)[0] == 6
    assert tree(proven) == before and sorted(proven.rglob("*")) == names
    assert card("update", *words)[0] == 0 and levels(proven)["gpu"] == "gpu_verified"
    assert (proven / "skills/share-it/config/card.yaml").stat().st_mode & 0o777 == 0o640
    assert not [name for name in tree(proven) if name.endswith(".new")]


def test_a_card_that_cannot_be_made_leaves_no_report(pack: Path, runs: Path, card: Run) -> None:
    (pack / "skills/share-it/config/card.yaml").write_bytes(b"\xff")
    before = tree(pack)
    assert card("update", report(runs, pack))[1]["error"]["code"] == "card-damaged" and tree(pack) == before


WEAKER: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a family less": ({"rows": cases("f")}, ["g parity"]),
    "a case less": ({"rows": cases("f", "g")[:4] + cases("f", "g")[5:]}, ["g parity"]),
    "fewer ranks": ({"nproc": 1}, ["2 ranks, and the new report has 1"]),
    "both": ({"rows": cases("g"), "nproc": 1}, ["2 cases that passed: f parity", "the new report has 1"]),
}


@pytest.mark.parametrize("name", WEAKER)
def test_a_report_that_shows_less_is_refused(name: str, proven: Path, runs: Path, card: Run) -> None:
    changes, said = WEAKER[name]
    before = tree(proven)
    code, answer = card("update", report(runs, proven, "1.0"), report(runs, proven, "2.0", **changes))
    error = answer["error"]
    assert (code, error["code"], error["where"]) == (3, "weaker-report", PLACE)
    assert all(words in error["message"] for words in said) and "--label" in error["hint"]
    assert answer["rows"] and {row["file"] for row in answer["rows"]} == {PLACE} and tree(proven) == before
    assert card("update", "--label", "small", report(runs, proven, "2.0", **changes))[0] == 0
    assert levels(proven)["parity"] == "cpu_verified"
    assert card("update", "--replace", report(runs, proven, "2.0", **changes))[0] == 0
    assert card("check")[0] == 0


def test_every_lost_case_is_named(proven: Path, runs: Path, card: Run) -> None:
    rows = card("update", report(runs, proven, "2.0", cases("f")))[1]["rows"]
    assert [(row["family"], row["kind"], row["name"]) for row in rows] == [
        ("g", "parity", "CP 2, images"),
        ("g", "parity", "CP 4 [2,2]"),
    ]


def test_what_proves_nothing_any_more_may_go(proven: Path, runs: Path, card: Run) -> None:
    place = proven / "runtime/plan.py"
    place.write_text(place.read_text().replace("n + 1", "n + 2"))
    assert card("update", report(runs, proven, "2.0", cases("f")))[0] == 0
    (proven / PLACE).write_text("{")
    assert card("update", report(runs, proven, "2.0", cases("g")))[0] == 0


def test_a_report_of_another_main_replaces_the_old_one(proven: Path, runs: Path, card: Run) -> None:
    assert card("update", report(runs, proven, "abc123456789", cases("f", "g")))[0] == 0
    place = proven / "card.yaml"
    place.write_text(place.read_text().replace("abc123", "def456"))
    assert card("update", report(runs, proven, "def456000000", cases("f")))[0] == 0


def test_two_reports_of_one_name_are_not_taken_at_once(pack: Path, runs: Path, card: Run) -> None:
    before = tree(pack)
    code, answer = card("update", report(runs, pack), report(runs, pack, rows=cases("f")))
    assert (code, answer["error"]["code"]) == (2, "reports-of-one-name") and PLACE in answer["error"]["message"]
    assert tree(pack) == before
