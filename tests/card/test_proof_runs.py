"""`make proof` makes each run on a fresh tree and lets the card take its report, unless the card has it already."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.card.packs import Run, report

RUNS = """\
environments: {}
checkouts: {automodel: SOME_REPO}
runs:
  - {technique: share-it, release: automodel-1.0, nproc: 2}
  - {technique: share-it, release: automodel-2.0, nproc: 4, core: core-1, families: [f], kinds: [parity]}
  - {technique: share-it, release: automodel-2.0, nproc: 4, label: trained, apply: [--trainable]}
  - {technique: share-it, release: automodel-main, nproc: 2}
  - {technique: share-it, release: automodel-1.0, nproc: 2, label: own, slow: true}
"""
Words = list[list[str]]


@pytest.fixture
def script(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("proof_script", Path(__file__).parents[2] / "bench/proof.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", pack)
    monkeypatch.delenv("SOME_REPO", raising=False)
    (pack / "proof").mkdir()
    (pack / "proof/runs.yaml").write_text(RUNS)
    for name in ("automodel-1.0", "automodel-2.0", "core-1"):
        (tmp_path / "releases" / name / ".skillgen").mkdir(parents=True)
        (tmp_path / "releases" / name / "model.py").write_text("x = 1\n")
    return module


def made(
    script: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str, failing: str = ""
) -> tuple[int, Words]:
    """The script's exit code, and the commands that it ran; those that name `failing` fail."""
    asked: Words = []

    def skillgen(*words: str, log: Path) -> bool:
        asked.append(list(words))
        trees = [folder / "work" / word for word in ("automodel-1.0", "automodel-2.0", "automodel-main")]
        assert words[0] != "apply" or any(str(t) in words and (t / "model.py").is_file() for t in trees)
        assert not any((tree / ".skillgen").exists() for tree in trees)
        return not failing or not any(failing in word for word in words)

    def checked(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command[3:])
        return subprocess.CompletedProcess(command, 0)

    places = [f"--{name}={folder / name}" for name in ("releases", "work", "reports")]
    monkeypatch.setattr(script, "skillgen", skillgen)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["proof.py", *places, *words])
        patch.setattr(script.subprocess, "run", checked)
        with pytest.raises(SystemExit) as end:
            script.main()
    return int(end.value.code or 0), asked


def test_every_run_is_applied_evaluated_and_taken(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, asked = made(script, tmp_path, monkeypatch)
    assert code == 0 and [words[0] for words in asked] == ["apply", "eval", "card"] * 3 + ["card", "card"]
    second, third = asked[3:6], asked[6:9]
    tree = str(tmp_path / "work/automodel-2.0")
    place = str(tmp_path / "reports/share-it-automodel-2.0")
    assert second[0] == ["apply", "share-it", tree, "--no-lint"]
    assert second[1][:5] == ["eval", "share-it", tree, "--nproc", "4"]
    assert second[1][5:] == [
        *["--report", place, "--family", "f", "--kind", "parity"],
        *["--mcore", str(tmp_path / "releases/core-1")],
    ]
    assert second[2] == ["card", "update", place]
    assert third[0][-1] == "--trainable" and third[2] == ["card", "update", f"{place}-trained", "--label", "trained"]
    assert asked[-2:] == [["card", "update"], ["card", "check"]]
    assert "automodel-main" in capsys.readouterr().out.splitlines()[-1]


def test_a_failed_run_does_not_keep_the_others_from_running(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, asked = made(script, tmp_path, monkeypatch, failing="automodel-1.0")
    assert code == 1 and [words[0] for words in asked] == ["apply"] + ["apply", "eval", "card"] * 2 + ["card", "card"]


def test_a_report_of_the_code_as_it_is_is_not_made_again(
    script: ModuleType, pack: Path, runs: Path, card: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card("update", report(runs, pack, "1.0"), report(runs, pack, "2.0"))
    trees = [words[2] for words in made(script, tmp_path, monkeypatch)[1] if words[0] == "apply"]
    assert len(trees) == 1
    assert len([words for words in made(script, tmp_path, monkeypatch, "--all")[1] if words[0] == "apply"]) == 3
    (pack / "runtime/plan.py").write_text("def plan(n):\n    return n + 2\n")
    assert len([words for words in made(script, tmp_path, monkeypatch)[1] if words[0] == "apply"]) == 3


def test_slow_runs_are_made_where_they_are_asked_for(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = made(script, tmp_path, monkeypatch, "--slow", "--only", "1.0")[1]
    assert [words[3:] for words in asked if words[:2] == ["card", "update"]] == [[], ["--label", "own"], []]


def test_the_reports_of_another_machine_are_kept_beside_the_first(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = made(script, tmp_path, monkeypatch, "--label", "epyc", "--only", "2.0")[1]
    labels = [words[3:] for words in asked if words[:2] == ["card", "update"]]
    assert labels == [["--label", "epyc"], ["--label", "trained-epyc"], []]


def test_main_is_cloned_at_the_commit_that_the_card_names(
    script: ModuleType, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "model.py").write_text("old = 1\n")
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "old"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (repository / "model.py").write_text("new = 1\n")
    subprocess.run([*git, "commit", "-qam", "new"], check=True)
    (pack / "card.yaml").write_text((pack / "card.yaml").read_text().replace("abc123", commit[:9]))
    monkeypatch.setenv("SOME_REPO", str(repository))
    run = {"technique": "share-it", "release": "automodel-main"}
    tree = script.tree_of(run, tmp_path, {"automodel": "SOME_REPO"}, tmp_path / "work", tmp_path / "log")
    assert (tree / "model.py").read_text() == "old = 1\n"
