"""The server stays in its folders, writes and runs only where it may, and goes on after every refusal."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.trees import MODEL, git, snapshot, write

T = "vision-dp-over-cp"
OUTSIDE = (3, "outside-roots")


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """A tree outside of the root."""
    write(tmp_path / "away/megatron/bridge")
    return tmp_path / "away"


def test_a_server_that_may_not_write(reader: Any, tree: Path) -> None:
    before = snapshot(tree)
    for tool, more in {"apply": {}, "revert": {}, "plan": {"output": str(tree / "x.patch")}}.items():
        answer = reader(tool, technique=T, target=str(tree), **more)
        assert (answer["exit_code"], answer["error"]["code"]) == (3, "not-allowed")
        assert f"skillgen mcp --root {tree.parent} --allow-write" in answer["error"]["hint"]
    assert "--allow-run" in reader("eval", technique=T, target=str(tree))["error"]["message"]
    assert snapshot(tree) == before
    assert reader("plan", technique=T, target=str(tree))["ok"] and reader("status", target=str(tree))["ok"]


def test_a_server_that_may_run_and_not_write(connect: Any, home: Path, tree: Path) -> None:
    with connect("--root", home, "--allow-run") as runner:
        asked = {"technique": T, "target": str(tree)}
        assert runner.refused("eval", **asked, report=str(tree / "report")) == (3, "not-allowed")
        assert runner.refused("eval", **asked) == (3, "not-applied")  # it would have run
        assert runner.refused("apply", **asked) == (3, "not-allowed")


def test_what_a_killed_command_left_is_not_settled_by_a_reader(reader: Any, writer: Any, tree: Path) -> None:
    state = tree / ".skillgen"
    state.mkdir()
    (state / "journal.json.new").write_text("")
    before = snapshot(tree)
    assert reader.refused("status", target=str(tree)) == (3, "not-allowed")
    assert reader.refused("plan", technique=T, target=str(tree)) == (3, "not-allowed")
    assert snapshot(tree) == before
    assert writer("status", target=str(tree))["ok"]
    assert not state.exists()


@pytest.mark.parametrize("way", ["absolute", "dots", "home", "missing", "link to it", "link in the way"])
def test_a_target_outside(way: str, writer: Any, home: Path, tree: Path, away: Path) -> None:
    link = tree / "link"
    link.symlink_to(away if way == "link to it" else away.parent)
    ways = {
        "absolute": str(away),
        "dots": f"{tree.name}/../../{home.parent.name}",
        "home": "~",
        "missing": "/nonexistent",
        "link to it": str(link),
        "link in the way": f"{tree.name}/link/away",
    }
    before = snapshot(away)
    for tool, more in {"scan": {}, "status": {}, "apply": {"technique": T}, "eval": {"technique": T}}.items():
        assert writer.refused(tool, target=ways[way], **more) == OUTSIDE, tool
    assert snapshot(away) == before


def test_a_tree_that_begins_above_the_root(connect: Any, away: Path) -> None:
    """A target is searched for upwards, too."""
    with connect("--root", away / "megatron/bridge/models", "--allow-write") as server:
        assert server.refused("scan", target=".") == OUTSIDE
        assert server.refused("apply", target=".", technique=T) == OUTSIDE


STATE = ["state", "state/receipts", "state/.gitignore", "state/lock", "state/journal.json"]


@pytest.mark.parametrize("link", ["package", "folder", "file", *STATE])
def test_a_link_out_of_the_target(link: str, reader: Any, writer: Any, tree: Path, away: Path) -> None:
    places = {"package": "megatron/bridge", "folder": "megatron/bridge/models", "file": f"megatron/bridge/{MODEL}"}
    if link in STATE:
        path = tree / link.replace("state", ".skillgen")
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(away if link in STATE[:2] else away / "megatron/bridge/__init__.py")
    else:
        path = tree / places[link]
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to(away / places[link])
    before = snapshot(away)
    assert reader.refused("scan", target=str(tree)) == OUTSIDE
    assert reader.refused("plan", target=str(tree), technique=T) == OUTSIDE
    assert writer.refused("apply", target=str(tree), technique=T) == OUTSIDE
    assert snapshot(away) == before


SETTINGS = {
    "pyproject.toml": '[tool.ruff]\nextend = "{}"\n',
    "ruff.toml": 'extend = "{}"\n',
    "megatron/bridge/models/.ruff.toml": 'extend = "{}"\n',
    "between": 'extend = "more.toml"\n',
}


@pytest.mark.parametrize("place", [*SETTINGS, "link", "${NONE:-}", "~/"])
def test_ruff_settings_that_lead_outside(place: str, reader: Any, writer: Any, tree: Path, away: Path) -> None:
    (away / "notes.toml").write_text("the-secret")
    (tree / "ruff.toml").write_text("line-length = 119\n")
    if place == "link":
        (tree / "ruff.toml").unlink()
        (tree / "ruff.toml").symlink_to(away / "notes.toml")
    elif place in SETTINGS:
        (tree / "ruff.toml").write_text(SETTINGS["ruff.toml"].format("pyproject.toml"))
        (tree / "more.toml").write_text(SETTINGS["ruff.toml"].format(away / "notes.toml"))
        name = "ruff.toml" if place == "between" else place
        (tree / name).write_text(SETTINGS[place].format(away / "notes.toml"))
    else:
        (tree / "ruff.toml").write_text(SETTINGS["ruff.toml"].format(f"{place}{away}/notes.toml"))
    asked = {"technique": T, "target": str(tree)}
    for server, tool in ((reader, "plan"), (writer, "apply")):
        answer = server(tool, **asked)
        assert answer["error"]["code"] == ("ruff-failed" if place[0] in "$~" else "outside-roots")
        assert "secret" not in str(answer)
        assert ("cannot be told" in answer["error"]["message"]) == (place[0] in "$~")
    if place != "link":
        assert reader("plan", **asked, no_lint=True)["ok"]


def test_ruff_settings_that_stay_inside(reader: Any, tree: Path) -> None:
    (tree / "ruff.toml").write_text('extend = "base.toml"\n')
    (tree / "base.toml").write_text('line-length = 119\nlint.select = ["F"]\n')
    answer = reader("plan", technique=T, target=str(tree))
    assert answer["ok"] and "ruff-not-run" not in str(answer["rows"])


def test_a_hard_link_is_not_written_through(writer: Any, tree: Path, away: Path) -> None:
    (tree / ".skillgen").mkdir()
    (tree / ".skillgen/.gitignore").hardlink_to(away / f"megatron/bridge/{MODEL}")
    before = snapshot(away)
    assert writer.refused("apply", target=str(tree), technique=T) == (3, "hard-link")
    assert snapshot(away) == before


def test_a_link_within_the_root_is_none_out_of_it(reader: Any, tree: Path) -> None:
    (tree / "same").symlink_to(tree)
    answer = reader("scan", target=str(tree / "same"), technique=T)
    assert answer["ok"] and answer["target"] == str(tree)


def test_a_worktree_whose_git_folder_is_elsewhere(connect: Any, home: Path, writer: Any, away: Path) -> None:
    git(away, "init", "-q")
    git(away, "add", ".")
    git(away, "commit", "-q", "-m", "start")
    worktree = home / "worktree"
    git(away, "worktree", "add", "-q", str(worktree))
    before = snapshot(away / ".git")
    assert writer.refused("apply", target=str(worktree), technique=T) == OUTSIDE
    assert snapshot(away / ".git") == before
    with connect("--root", home, "--root", away, "--allow-write") as server:
        assert server("apply", target=str(worktree), technique=T)["ok"]


@pytest.mark.parametrize("argument", ["mcore", "report", "output", "python"])
def test_the_other_paths(argument: str, writer: Any, tree: Path, away: Path) -> None:
    write(away / "megatron/core", {"__init__.py": ""})
    tool = "plan" if argument == "output" else "eval"
    (tree / "link").symlink_to(away)
    before = snapshot(away)
    for place in (away / "new", tree / "link/new", Path(sys.executable).parent / "python3"):
        asked = {argument: str(place.parent if argument == "mcore" else place)}
        code = (2, "usage") if argument == "python" else OUTSIDE
        assert writer.refused(tool, technique=T, target=str(tree), **asked) == code
    assert snapshot(away) == before


def test_a_report_through_a_link(writer: Any, tree: Path, away: Path) -> None:
    (tree / "report").mkdir()
    (tree / "report/report.md").symlink_to(away / "notes.md")
    assert writer.refused("eval", technique=T, target=str(tree), report=str(tree / "report")) == OUTSIDE


@pytest.mark.parametrize("way", ["hard link", "pipe"])
def test_a_report_over_what_is_no_file_of_its_own(way: str, writer: Any, tree: Path, away: Path) -> None:
    (tree / "report").mkdir()
    if way == "pipe":
        os.mkfifo(tree / "report/report.md")
    else:
        (tree / "report/report.md").hardlink_to(away / f"megatron/bridge/{MODEL}")
    asked = {"technique": T, "target": str(tree), "report": str(tree / "report")}
    assert writer.refused("eval", **asked) == (3, "hard-link" if way == "hard link" else "in-the-way")


def test_a_patch_over_a_file(writer: Any, tree: Path) -> None:
    (tree / "README.md").write_text("mine\n")
    asked = {"technique": T, "target": str(tree), "output": str(tree / "README.md")}
    assert writer.refused("plan", **asked) == (3, "file-exists")
    assert (tree / "README.md").read_text() == "mine\n"


def test_only_the_pythons_named_at_the_start(connect: Any, home: Path, tree: Path) -> None:
    asked = {"technique": T, "target": str(tree), "python": "/opt/eval/bin/python"}
    with connect("--root", home, "--allow-run", "--python", "/opt/eval/bin/python") as server:
        assert server.refused("eval", **asked) == (3, "not-applied")
        assert server.refused("eval", **{**asked, "python": "/bin/sh"}) == (2, "usage")
        assert server.tools["eval"].input_schema["properties"]["python"]["enum"][1:] == ["/opt/eval/bin/python"]
