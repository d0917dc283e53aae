"""What a technique brings to the command line comes from its folder alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skillgen.techniques
from skillgen.cli.parser import build_parser, main

FILES = {
    "__init__.py": """
from skillgen.kernel.option import Option
NAME = "toy-shape"
SUMMARY = "give toys a shape"
OPTIONS = {"shape": Option(("round", "flat"), "of the toy"), "loud": Option((True, False), "it squeaks")}
""",
    "technique.py": """
from skillgen.kernel.model import Outcome, Row
def rows(target):
    return [Row("toy-shape", "ball", Outcome.REFUSED, "no-toys", "there are no toys here", ("a.py:1",))]
""",
    "doctor.py": """
from skillgen.techniques.shared.hooks import Check
def checks(target, families):
    yield Check("toys", "absent" if target is None else "ok", "", "buy some")
""",
    "advise.py": """
from skillgen.techniques.shared.hooks import Advised
HELP = "which toy"
def register(parser):
    parser.add_argument("--age", type=int)
def run(args):
    return Advised([{"toy": "ball" if args.age < 9 else "book"}], ("toy",))
""",
}


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A technique in a folder of its own, found by walking."""
    for name, text in FILES.items():
        (tmp_path / "toy_shape").mkdir(exist_ok=True)
        (tmp_path / "toy_shape" / name).write_text(text)
    monkeypatch.setattr(skillgen.techniques, "__path__", [*skillgen.techniques.__path__, str(tmp_path)])
    yield
    for name in [name for name in sys.modules if name.startswith("skillgen.techniques.toy_shape")]:
        del sys.modules[name]


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"technique": "toy-shape", "summary": "give toys a shape"} in answer(capsys, "list")["rows"]


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_its_options_are_the_commands(command: str) -> None:
    args = build_parser().parse_args([command, "toy-shape", "/tree", "--shape", "flat", "--no-loud"])
    assert (args.shape, args.loud) == ("flat", False)
    assert "toy-shape: of the toy" in help_of(command)


def help_of(command: str) -> str:
    choices = next(action.choices for action in build_parser()._actions if action.dest == "command")
    return " ".join(choices[command].format_help().split())


def test_its_options_are_no_other_techniques(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    package = tmp_path / "tree/nemo_automodel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    error = answer(capsys, "plan", "vision-frame-sharding", str(tmp_path / "tree"), "--shape", "flat")["error"]
    assert (error["code"], "--trainable" in error["hint"]) == ("no-such-option", True)


def test_its_checks_are_the_doctors(capsys: pytest.CaptureFixture[str]) -> None:
    row = next(row for row in answer(capsys, "doctor")["rows"] if row["check"] == "toys")
    assert row == {"check": "toys", "state": "absent", "found": "", "means": "buy some"}


def test_its_advice_takes_its_own_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert "which toy: toy-shape" in help_of("advise")
    assert answer(capsys, "advise", "toy-shape", "--age", "3")["rows"] == [{"toy": "ball"}]
