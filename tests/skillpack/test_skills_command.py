"""`skillgen skills`: what it lists, what it finds, and that an install is whole or nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.kernel import resources
from skillgen.skillpack import install as skill_install
from skillgen.skillpack.rules import check

ROOT = Path(__file__).parents[2]
SKILLS = sorted(path.name for path in (ROOT / "skills").iterdir())
SHARED, CLAUDE = Path(".agents/skills"), Path(".claude/skills")
NAME = "vision-dp-over-cp"
Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def skills(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> tuple[int, dict[str, Any]]:
        code = main(["skills", *map(str, words), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def states(answer: dict[str, Any]) -> set[str]:
    return {row["state"] for row in answer["rows"]}


def test_list_names_every_skill(skills: Run) -> None:
    code, answer = skills("list")
    assert code == 0 and [row["skill"] for row in answer["rows"]] == SKILLS
    assert all(set(row) == {"skill", "version", "description"} and all(row.values()) for row in answer["rows"])


def test_validate_is_content_with_this_pack(skills: Run) -> None:
    assert skills("validate") == skills("validate", ROOT / "skills")
    code, answer = skills("validate")
    assert (code, answer["rows"], answer["error"]) == (0, [], None)


def test_validate_tells_rule_file_line_and_what_to_do(skills: Run, tmp_path: Path) -> None:
    bad = tmp_path / "skills" / "bad"
    bad.mkdir(parents=True)
    (bad / "SKILL.md").write_text("---\nname: good\ntags: x\n---\n")
    code, answer = skills("validate", bad)
    assert code == 1 and answer["error"]["code"] == "skill-findings"
    assert all(set(row) == {"skill", "rule", "level", "file", "line", "do"} for row in answer["rows"])
    assert ("name", 2) in {(row["rule"], row["line"]) for row in answer["rows"]}
    assert skills("validate", tmp_path / "skills")[1]["rows"] == answer["rows"]


def test_validate_of_nothing_is_a_mistake(skills: Run, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "gone"):
        code, answer = skills("validate", place)
        assert code == 2 and answer["error"]["code"] == "no-skill"


def test_install_without_an_agent_serves_the_two_common_folders(skills: Run, tmp_path: Path) -> None:
    code, answer = skills("install", "--dest", tmp_path)
    assert code == 0 and states(answer) == {"installed"}
    for folder in (SHARED, CLAUDE):
        for name in SKILLS:
            assert tree(tmp_path / folder / name) == tree(ROOT / "skills" / name)
            assert check(tmp_path / folder / name) == []
    assert sorted(os.listdir(tmp_path / SHARED)) == sorted([*SKILLS, ".skillgen.json"])
    assert states(skills("install", "--dest", tmp_path)[1]) == {"unchanged"}


@pytest.mark.parametrize(
    ("agent", "folder"), [("claude-code", CLAUDE), ("codex", SHARED), ("cursor", SHARED), ("goose", ".goose/skills")]
)
def test_install_of_one_skill_for_one_agent(skills: Run, tmp_path: Path, agent: str, folder: Path) -> None:
    assert skills("install", "--agent", agent, "--skill", NAME, "--dest", tmp_path)[0] == 0
    found = {path.relative_to(tmp_path) for path in tmp_path.rglob("SKILL.md")}
    assert found == {Path(folder) / NAME / "SKILL.md"}


def test_install_into_the_current_folder(skills: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    skills("install", "--agent", "codex")
    assert (tmp_path / SHARED / NAME / "SKILL.md").is_file()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--agent", "nobody"], "unknown-agent"),
        (["--skill", "nothing"], "unknown-skill"),
        (["--dest", "/no/such/folder"], "no-such-folder"),
        (["--dest", "~nosuch"], "no-home"),
    ],
)
def test_a_mistake_writes_nothing(skills: Run, tmp_path: Path, words: list[str], code: str) -> None:
    found, answer = skills("install", "--dest", tmp_path, *words)
    assert found == 2 and answer["error"]["code"] == code and answer["error"]["hint"]
    assert not any(tmp_path.iterdir())


def foreign(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "SKILL.md").write_text("theirs")
    (folder.parent / ".skillgen.json").unlink()


def edited(folder: Path) -> None:
    (folder / "SKILL.md").write_text("ours, and then theirs")


def noted(folder: Path) -> None:
    (folder / ".note").write_text("theirs")


def a_file(folder: Path) -> None:
    foreign(folder)
    shutil.rmtree(folder)
    folder.write_text("theirs")


@pytest.mark.parametrize("change", [foreign, edited, noted, a_file])
def test_what_is_not_ours_stays_unless_told_otherwise(
    skills: Run, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    words = ["install", "--agent", "codex", "--dest", tmp_path]
    skills(*words)
    change(tmp_path / SHARED / NAME)
    shutil.rmtree(tmp_path / SHARED / "hierarchical-cp")
    before = tree(tmp_path)
    code, answer = skills(*words)
    assert code == 3 and answer["error"]["where"] == str(tmp_path / SHARED / NAME)
    assert answer["error"]["code"] == ("edited-skill" if change in (edited, noted) else "foreign-skill")
    assert tree(tmp_path) == before
    code, answer = skills(*words, "--force")
    assert code == 0 and "replaced" in states(answer)
    assert tree(tmp_path / SHARED / NAME) == tree(ROOT / "skills" / NAME)


@pytest.fixture
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of another version of the pack."""
    folder = tmp_path_factory.mktemp("older")
    shutil.copytree(ROOT / "skills", folder / "skills")
    (folder / "skills" / NAME / "references" / "older.md").write_text("gone in the next version")
    return folder


def test_an_unedited_older_skill_is_updated(
    skills: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(resources, "root", lambda: older)
        skills("install", "--dest", tmp_path, "--agent", "codex")
    assert (tmp_path / SHARED / NAME / "references/older.md").is_file()
    code, answer = skills("install", "--dest", tmp_path, "--agent", "codex")
    assert code == 0 and {row["skill"] for row in answer["rows"] if row["state"] == "updated"} == {NAME}
    assert tree(tmp_path / SHARED / NAME) == tree(ROOT / "skills" / NAME)


@pytest.mark.parametrize("fails_at", range(1, 7))
def test_a_failing_install_leaves_all_as_it_was(
    skills: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: Path, fails_at: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(resources, "root", lambda: older)
        assert skills("install", "--dest", tmp_path, "--skill", NAME)[0] == 0
    before = tree(tmp_path)
    rename, calls = Path.rename, []

    def fail_once(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == fails_at:
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_once)
    code, answer = skills("install", "--dest", tmp_path, "--skill", NAME, "--skill", "hierarchical-cp")
    assert code == 6 and answer["error"]["message"] == "No space left on device"
    assert tree(tmp_path) == before


def test_a_failing_copy_is_never_seen(skills: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[object] = []

    def fail_late(*args: object) -> None:
        copies.append(args)
        if len(copies) == 12:
            raise OSError(28, "No space left on device")
        Path(str(args[1])).write_bytes(Path(str(args[0])).read_bytes())

    monkeypatch.setattr(shutil, "copyfile", fail_late)
    assert skills("install", "--dest", tmp_path)[0] == 6
    assert not list(tmp_path.rglob("SKILL.md"))


def test_what_a_killed_install_left_goes_away(skills: Run, tmp_path: Path) -> None:
    left = tmp_path / SHARED / ".skillgen-killed" / "new" / NAME
    left.mkdir(parents=True)
    (left / "SKILL.md").write_text("half")
    skills("install", "--dest", tmp_path, "--agent", "codex", "--skill", NAME)
    assert not left.exists() and tree(tmp_path / SHARED / NAME) == tree(ROOT / "skills" / NAME)


def test_folders_that_are_one_are_written_once(skills: Run, tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    for folder in (SHARED, CLAUDE):
        (tmp_path / folder).parent.mkdir()
        (tmp_path / folder).symlink_to("../skills")
    code, answer = skills("install", "--dest", tmp_path, "--skill", NAME)
    assert code == 0 and [row["path"] for row in answer["rows"]] == [str(tmp_path / "skills" / NAME)]
    assert {"claude-code", "codex"} <= set(answer["rows"][0]["agents"])


@pytest.mark.parametrize("place", [".claude", CLAUDE, SHARED])
@pytest.mark.parametrize("what", ["file", "loop", "link to nothing", "link to a file"])
def test_what_is_in_the_way_of_a_folder(skills: Run, tmp_path: Path, place: Path, what: str) -> None:
    path = tmp_path / "project" / place
    path.parent.mkdir(parents=True)
    (tmp_path / "file").touch()
    links = {"loop": path, "link to nothing": tmp_path / "nothing", "link to a file": tmp_path / "file"}
    path.symlink_to(links[what]) if what in links else path.touch()
    before = sorted(tmp_path.rglob("*"))
    code, answer = skills("install", "--dest", tmp_path / "project", "--force")
    assert (code, answer["error"]["code"], answer["error"]["where"]) == (3, "in-the-way", str(path))
    assert "--agent" in answer["error"]["hint"] and sorted(tmp_path.rglob("*")) == before


def test_a_link_to_itself_is_foreign(skills: Run, tmp_path: Path) -> None:
    (tmp_path / CLAUDE).mkdir(parents=True)
    (tmp_path / CLAUDE / NAME).symlink_to(NAME)
    code, answer = skills("install", "--dest", tmp_path)
    assert (code, answer["error"]["code"]) == (3, "foreign-skill")
    assert skills("install", "--dest", tmp_path, "--force")[0] == 0
    assert (tmp_path / CLAUDE / NAME / "SKILL.md").is_file()


def test_a_link_to_the_other_folder_stays_a_link(skills: Run, tmp_path: Path) -> None:
    """As other installers lay them out."""
    (tmp_path / CLAUDE).mkdir(parents=True)
    (tmp_path / SHARED / NAME).mkdir(parents=True)
    shutil.copytree(ROOT / "skills" / NAME, tmp_path / SHARED / NAME, dirs_exist_ok=True)
    (tmp_path / CLAUDE / NAME).symlink_to(Path("../..") / SHARED / NAME)
    code, answer = skills("install", "--dest", tmp_path, "--skill", NAME)
    assert code == 0 and [row["state"] for row in answer["rows"]] == ["unchanged", "linked"]
    assert (tmp_path / CLAUDE / NAME).is_symlink()


def test_what_an_editor_left_in_the_pack_is_not_installed(
    skills: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: Path
) -> None:
    for name in (".DS_Store", "config/__pycache__/x.pyc"):
        path = older / "skills" / NAME / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    monkeypatch.setattr(resources, "root", lambda: older)
    skills("install", "--dest", tmp_path, "--agent", "codex", "--skill", NAME)
    found = tree(tmp_path / SHARED / NAME)
    assert "references/older.md" in found and not [name for name in found if "DS_Store" in name or "pyc" in name]


def test_agents_read_folders_that_end_in_skills() -> None:
    assert {"claude-code", "codex", "cursor", "gemini-cli", "github-copilot"} <= set(skill_install.AGENTS)
    assert all(folder.endswith("/skills") for folder in skill_install.AGENTS.values())
