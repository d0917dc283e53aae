"""Ctrl-C ends every command alike, wherever it falls, and no error fills the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import libcst
import pytest

from skillgen.cli import commands
from skillgen.cli.parser import main
from tests.cli.trees import MODEL, Skillgen, snapshot

T = "vision-dp-over-cp"
SAID = {"code": "interrupted", "message": "interrupted", "where": "", "hint": ""}


def test_ctrl_c_within_libcst(skillgen: Skillgen, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    model = tree / "megatron/bridge" / MODEL
    model.write_text(f"{model.read_text()}# not what an earlier test has left in a cache\n")
    before = snapshot(tree)
    # a block looks up the position of its last statement on the way out, and it has none then: KeyError
    monkeypatch.setattr(libcst.Return, "_codegen_impl", interrupted)
    code, answer = skillgen("apply", T, tree)
    assert (code, answer["error"]) == (130, SAID)
    assert snapshot(tree) == before


def _as_cause(error: Exception) -> None:
    raise error from KeyboardInterrupt()


def _as_context(error: Exception) -> None:
    try:
        raise KeyboardInterrupt
    finally:
        raise error


def _hidden(error: Exception) -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise error from ValueError("another")


@pytest.mark.parametrize("way", [_as_cause, _as_context, _hidden])
@pytest.mark.parametrize("error", [KeyError("node"), OSError(2, "gone")], ids=lambda error: type(error).__name__)
def test_an_error_that_ctrl_c_caused(
    way: Any, error: Exception, skillgen: Skillgen, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(commands.COMMANDS, "scan", lambda args: way(error))
    code, answer = skillgen("scan", tree)
    assert (code, answer["error"]) == (130, SAID)


def test_ctrl_c_while_the_answer_is_printed(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        print("{", end="")
        raise KeyboardInterrupt

    monkeypatch.setattr("skillgen.cli.output.emit", interrupted)
    assert main(["scan", str(tree), "--json"]) == 130
    said = capsys.readouterr()
    assert (said.out, said.err) == ("{", "skillgen: interrupted: interrupted\n")


@pytest.mark.parametrize("debug", ["", "1"])
def test_the_text_of_a_defect_is_cut(
    debug: str, tree: Path, skillgen: Skillgen, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(args: object, depth: int = 300) -> None:
        if depth:
            Broken.again(args, depth - 1)
        raise KeyError("node\n" * 40_000)

    class Broken:  # two functions in turn: Python folds one that calls itself
        @staticmethod
        def again(args: object, depth: int) -> None:
            broken(args, depth)

    monkeypatch.setitem(commands.COMMANDS, "scan", broken)
    monkeypatch.setenv("SKILLGEN_DEBUG", debug)
    assert main(["scan", str(tree)]) == 70
    said = capsys.readouterr().err
    assert "KeyError: 'node" in said and "more characters" in said
    assert len(said) < (60_000 if debug else 1_000) and len(said.splitlines()) < 1_000
    assert ("Traceback" in said) == ("more lines" in said) == bool(debug)
    code, answer = skillgen("scan", tree)
    assert (code, answer["error"]["code"]) == (70, "internal") and len(answer["error"]["message"]) < 500


def test_an_empty_word_is_no_command(skillgen: Skillgen, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = skillgen("")
    assert (code, answer["error"]["code"]) == (2, "usage")


def test_an_answer_that_finds_no_space() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "skillgen", "list"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 6 and done.stderr.startswith("skillgen: io: No space left on device\n  hint: free space")
