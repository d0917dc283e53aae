"""No report makes a reader fail in another way than by an answer of its own, whatever stands in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.target import Target
from skillgen.report import record as report
from skillgen.report.code_hash import Hashes
from skillgen.report.pull_request import body as pr_body
from skillgen.report.pull_request import proof as pr_proof
from skillgen.report.pull_request.patch import Applied
from tests.card.packs import cases, write
from tests.report.records import COST, record, row

T = "share-it"
WRONG = (5, "x", "\ud800", True, None, [], [None], {}, {"x": [None]})
TEXTS = ("NaN", "1e999", "9" * 400)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a record; of a list its first item, but every row."""
    yield path
    if isinstance(value, dict):
        pairs = list(value.items())
    else:
        pairs = list(enumerate(value if path == ("rows",) else value[:1])) if isinstance(value, list) else []
    for key, inner in pairs:
        yield from leaves(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    if not path:
        return wrong
    key, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {**value, key: replaced(value[key], rest, wrong)}
    return [replaced(item, rest, wrong) if n == key else item for n, item in enumerate(value)]


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return write(tmp_path / "pack")


@pytest.fixture
def whole(pack: Path) -> dict[str, Any]:
    """A record with every key that a run may write, of the code of a miniature pack."""
    target = {"path": "/tree", "version": "2.0", "commit": None, "runtime": "1"}
    environment = {"versions": {"torch": "2"}, "variables": {"OMP_NUM_THREADS": "1"}, "platform": "Linux", "cpu": "c"}
    environment |= {"vector": "AVX2", "blas": "mkl"}
    environment |= {"cores": 2, "threads_per_rank": 1, "gpu": [], "hosts": ["a"], "target": target}
    numbers = {"before": [{"passed": 3}], "after": [{"passed": 4}], "newly failing": [[]]}
    own = row("passed", kind="compare", numbers={"step ms, ours": [1.0, 2.0], "step ms, upstream": [None, "nan"]})
    base = {"technique": T, "target": "/tree", "families": ["f", "g"], "kinds": ["parity"], "baseline": None}
    base |= {"command": "skillgen eval share-it /tree --mcore /core", "environment": environment}
    made = record(cases("f")[0], row("skipped", "strided"), COST, own, **base)
    made["rows"][1]["numbers"] = numbers
    made["patched"] = {
        "product": "automodel",
        "version": "2.0",
        "kind": "tree",
        "commit": None,
        "families": {"f": "0"},
    }
    hashes = Hashes(T, pack)
    made["code"] = {"sha256": hashes.shared, "families": {f: hashes.of(f) for f in "fg"}, "patch": "current"}
    return made


Reader = Callable[[Path], int]


def pull_request(patch: Applied, folder: Path) -> int:
    """What `pr-text` does with a report, without the checkout."""
    try:
        used, _ = pr_proof.choose(patch, [str(folder)])
        pr_body.compose(patch, used)
    except SkillgenError as error:
        return error.exit_code
    return 0


@pytest.fixture
def readers(tmp_path: Path, pack: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Reader]:
    report.write(whole, tmp_path / "good")
    good = str(tmp_path / "good")
    target = Target(tmp_path, "automodel", "tree", tmp_path, "2.0")
    patch = Applied(target, "vision-frame-sharding", ("f",), ())
    monkeypatch.setattr("skillgen.report.origin.digests", lambda *_: {"f": "0"})
    monkeypatch.setattr(pr_proof, "unfit", unfit(pr_proof.unfit))
    return {
        "show": lambda folder: main(["report", "show", str(folder)]),
        "compare": lambda folder: main(["report", "compare", good, str(folder), "--times", "--json"]),
        "pr-text": lambda folder: pull_request(patch, folder),
        "card update": lambda folder: main(["card", "update", "--pack", str(pack), "--replace", str(folder)]),
    }


def unfit(real: Callable[..., str]) -> Callable[..., str]:
    """As for a patch of the record's own technique, whatever that is called."""
    return lambda patch, told: real(patch, {**told, "technique": patch.technique})


def test_a_sound_report_is_read_by_all(tmp_path: Path, readers: dict[str, Reader]) -> None:
    assert {name: read(tmp_path / "good") for name, read in readers.items()} == dict.fromkeys(readers, 0)


@pytest.mark.evals
def test_no_leaf_of_a_wrong_type_is_a_defect(
    tmp_path: Path, whole: dict[str, Any], readers: dict[str, Reader], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(json.dumps(whole))
    folder = tmp_path / "bad"
    folder.mkdir()
    refused = 0
    for path in leaves(whole):
        mark = "a place that no text has"
        marked = json.dumps(replaced(whole, path, mark))
        for wrong in (*map(json.dumps, WRONG), *TEXTS):
            (folder / "report.json").write_text(marked.replace(json.dumps(mark), wrong))
            try:
                report.read(folder)
            except SkillgenError as error:
                assert error.code in ("report-damaged", "report-foreign") and error.exit_code == 2, (path, wrong)
                refused += 1
                continue  # every reader asks this first
            for name, read in readers.items():
                assert read(folder) in (0, 1, 2, 3), (name, path, wrong, capsys.readouterr().err)
    assert refused > 300


DAMAGED: dict[str, tuple[str, Any]] = {
    "code 5": ("code", 5),
    "code text": ("code", "x"),
    "code list": ("code", [None]),
    "code true": ("code", True),
    "pack_version 5": ("pack_version", 5),
    "pack_version list": ("pack_version", [None]),
    "pack_version true": ("pack_version", True),
    "gains": ("gains", [None]),
    "families": ("families", [["f"]]),
    "stand_ins": ("stand_ins", [5]),
    "command": ("command", "skillgen eval 'x"),
    "verdict": ("verdict", "PASS: 9 passed, 0 failed, 0 skipped on 8 ranks (nccl), 3 s"),
    "backend": ("backend", "nccl"),
    "nproc": ("nproc", 8),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_every_reader_says_that_a_report_is_damaged(
    name: str, tmp_path: Path, whole: dict[str, Any], readers: dict[str, Reader], capsys: pytest.CaptureFixture[str]
) -> None:
    field, value = DAMAGED[name]
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/report.json").write_text(json.dumps({**whole, field: value}))
    for reader, read in readers.items():
        capsys.readouterr()
        assert read(tmp_path / "bad") == 2, reader
        said = "".join(capsys.readouterr())
        assert reader == "pr-text" or "report-damaged" in said, reader


def test_a_report_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "report.json")
    assert main(["report", "show", str(tmp_path)]) == 3
