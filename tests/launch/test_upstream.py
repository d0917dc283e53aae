"""The target's own tests, without and with a patch: what newly fails is found, and the user's tree is left alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skillgen import ledger
from skillgen.kernel.model import Change
from skillgen.kernel.target import discover
from skillgen.launch import upstream
from skillgen.report import record as report
from skillgen.report import upstream as told

pytestmark = pytest.mark.evals

TECHNIQUE = "vision-frame-sharding"
CONFIG = "nemo_automodel/components/distributed/config.py"
OWN = "tests/unit_tests/distributed/test_patch.py"
TESTS = """\
import pytest
from nemo_automodel.components.distributed.config import double

def test_double():
    assert double(2) == 4

@pytest.mark.parametrize("number", [0, 1])
def test_more(number):
    assert double(number) == 2 * number

def test_that_fails_here_anyway():
    import no_such_module

@pytest.mark.skip
def test_for_a_gpu():
    assert False
"""
FILES = {
    "nemo_automodel/__init__.py": "",
    "nemo_automodel/package_info.py": "MAJOR, MINOR = 0, 5\n",
    CONFIG: "def double(number):\n    return 2 * number\n",
    "tests/unit_tests/distributed/test_config.py": TESTS,
    "tests/unit_tests/models/other/test_other.py": "def test_that_must_not_run():\n    raise SystemExit(9)\n",
    "docs/page.md": "A page.\n",
    ".gitignore": "__pycache__/\n",
}

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A checkout of a small Automodel with a patch that makes `double` this, and a test that comes with it."""

    def made(body: str, test: str = "def test_of_the_patch():\n    pass\n", place: str = OWN) -> Path:
        for name, text in FILES.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        for command in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "c"],
        ):
            subprocess.run(["git", *command], cwd=tmp_path, check=True)
        changes = [
            Change("docs/page.md", FILES["docs/page.md"].encode(), b"More.\n"),
            Change(CONFIG, FILES[CONFIG].encode(), f"def double(number):\n    return {body}\n".encode()),
            Change(place, None, test.encode()),
        ]
        ledger.commit(discover(tmp_path), changes, technique=TECHNIQUE, family="some", pack_version="0")
        return tmp_path

    return made


def contents(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def test_a_patch_that_breaks_nothing(make: Make) -> None:
    tree = make("number + number")
    with open(tree / "tests/unit_tests/distributed/test_config.py", "a") as file:
        file.write("\ndef test_of_the_user():\n    pass\n")  # an edit that is not ours stays in both arms
    before = contents(tree)
    row = upstream.row(TECHNIQUE, tree, python=sys.executable)
    assert row["status"] == "passed", row
    assert row["numbers"][told.EDITED] == [["tests/unit_tests/distributed"]]
    assert row["numbers"][told.BROUGHT] == [[OWN]]
    assert row["numbers"]["before"] == [{"passed": 4, "failed": 1, "skipped": 1}]
    assert row["numbers"]["after"] == [{"passed": 5, "failed": 1, "skipped": 1}]
    assert told.gain(row).endswith(
        "(distributed): 4 passed, 1 failed without the patch; "
        "5 passed, 1 failed with it and the tests that it brings (distributed/test_patch.py)"
    )
    assert contents(tree) == before


def test_what_newly_fails_is_named_also_where_a_file_no_longer_imports(make: Make) -> None:
    tree = make("2 * number\nraise ImportError", test="def test_of_the_patch():\n    assert False\n")
    row = upstream.row(TECHNIQUE, tree, python=sys.executable)
    folder = "tests/unit_tests/distributed"
    lost = [f"{folder}/test_config::{name}" for name in ("test_double", "test_more[0]", "test_more[1]")]
    assert row["status"] == "failed" and row["checks"] == {"tests that newly fail": (4, 0)}
    assert row["numbers"]["newly failing"] == [[*lost, f"{folder}/test_patch::test_of_the_patch"]]
    assert row["reason"].startswith(f"newly failing: {lost[0]}, ")


def test_a_test_that_passes_when_it_runs_again_is_no_loss(make: Make) -> None:
    once = "import pathlib\n\nclass TestOnce:\n    def test_of_the_patch(self):\n        mark = pathlib.Path('mark')\n"
    tree = make(
        "number + number", test=once + "        seen = mark.exists()\n        mark.touch()\n        assert seen\n"
    )
    row = upstream.row(TECHNIQUE, tree, python=sys.executable)
    assert row["status"] == "passed" and row["numbers"]["after"][0]["failed"] == 2


def test_what_cannot_run_is_skipped_with_its_reason(make: Make, tmp_path: Path) -> None:
    tree = make("number + number")
    late = upstream.row(TECHNIQUE, tree, python=sys.executable, limit=0.01)
    assert late["status"] == "skipped" and "did not end within 0.01 s" in late["reason"]
    bare = upstream.row(TECHNIQUE, tree, python="/bin/false")
    assert bare["status"] == "skipped" and bare["reason"] == "/bin/false has no pytest"
    ledger.revert(discover(tree), TECHNIQUE)
    assert "no receipt" in upstream.row(TECHNIQUE, tree, python=sys.executable)["reason"]
    wheel = tmp_path / "wheel"
    (wheel / "nemo_automodel").mkdir(parents=True)
    (wheel / "nemo_automodel/__init__.py").touch()
    row = upstream.row(TECHNIQUE, wheel, python=sys.executable)
    assert row["status"] == "skipped" and "wheel" in row["reason"]
    record = report.finish(
        {"rows": [row], "nproc": 2, "backend": "gloo", "seconds": 1, "mutate": None, "technique": TECHNIQUE}
    )
    assert not record["ok"] and record["gains"] == []


@pytest.mark.parametrize("good", [True, False])
def test_tests_of_the_patch_run_where_no_other_does(good: bool, make: Make) -> None:
    """A patch's own tests may lie in a folder whose other tests are of none of its files."""
    place = "tests/unit_tests/models/other/test_of_the_patch.py"
    tree = make("number + number", test=f"def test_it():\n    assert {good}\n", place=place)
    row = upstream.row(TECHNIQUE, tree, python=sys.executable)
    assert row["numbers"][told.BROUGHT] == [[place]], row
    assert row["numbers"]["before"] == [{"passed": 3, "failed": 1, "skipped": 1}]
    assert row["numbers"]["after"] == [{"passed": 3 + good, "failed": 2 - good, "skipped": 1}]
    assert row["status"] == ("passed" if good else "failed")
    assert row["numbers"]["newly failing"] == [[] if good else [f"{place[:-3]}::test_it"]]
