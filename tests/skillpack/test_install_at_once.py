"""Installs that run at the same time, and what one that was killed left."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skillgen.kernel.errors import SkillgenError
from skillgen.skillpack import install as skill_install

ROOT = Path(__file__).parents[2]
FOLDER = Path(".agents/skills")
SKILLS = sorted(path.name for path in (ROOT / "skills").iterdir())
# its copies take as long as those of a slow disk, so that the others come in between
SLOW = """
import shutil, sys, time
from skillgen.cli.parser import main
copy = shutil.copyfile
def slowly(source, to):
    time.sleep(0.01)
    return copy(source, to)
shutil.copyfile = slowly
sys.exit(main(["skills", "install", "--agent", "codex", "--dest", *sys.argv[1:]]))
"""


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_installs_at_once_all_succeed(tmp_path: Path) -> None:
    run = [sys.executable, "-c", SLOW, str(tmp_path), "--force"]
    started = [subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(4)]
    said = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4, said
    for name in SKILLS:
        assert tree(tmp_path / FOLDER / name) == tree(ROOT / "skills" / name)
    assert sorted(os.listdir(tmp_path / FOLDER)) == sorted([*SKILLS, ".skillgen.json"])


def test_one_that_does_not_end_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_install, "PATIENCE", 0.2)
    with skill_install.alone([tmp_path / FOLDER]):
        (tmp_path / FOLDER / ".skillgen-live" / "old-skillgen").mkdir(parents=True)
        before = sorted(tmp_path.rglob("*"))
        start = time.monotonic()
        with pytest.raises(SkillgenError) as caught:
            skill_install.install([], ["codex"], tmp_path)
        assert caught.value.code == "locked" and caught.value.hint and time.monotonic() - start < 25
        assert sorted(tmp_path.rglob("*")) == before


def test_what_came_meanwhile_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was absent when this install looked first, and is somebody's when it may write."""
    take = skill_install.take

    def late(path: Path) -> int | None:
        (tmp_path / FOLDER / SKILLS[0]).mkdir()
        (tmp_path / FOLDER / SKILLS[0] / "SKILL.md").write_text("theirs")
        return take(path)

    monkeypatch.setattr(skill_install, "take", late)
    with pytest.raises(SkillgenError) as caught:
        skill_install.install([], ["codex"], tmp_path)
    assert caught.value.code == "foreign-skill"
    assert tree(tmp_path) == {f"{FOLDER}/{SKILLS[0]}/SKILL.md": b"theirs"}


@pytest.mark.parametrize("name", [".skillgen.json", ".skillgen.lock"])
def test_a_pipe_in_the_place_of_a_file_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    os.mkfifo(tmp_path / FOLDER / name)
    done = subprocess.run(
        [sys.executable, "-m", "skillgen", "skills", "install", "--agent", "codex", "--dest", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if name == ".skillgen.json":  # nothing is known then, and it is replaced
        assert done.returncode == 0 and (tmp_path / FOLDER / name).is_file()
    else:
        assert done.returncode == 3 and "in-the-way" in done.stderr
        assert os.listdir(tmp_path / FOLDER) == [name]


def test_where_files_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The install goes on, and takes away nothing that may belong to another one."""
    (tmp_path / FOLDER / ".skillgen-other").mkdir(parents=True)

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    skill_install.install([], ["codex"], tmp_path)
    assert sorted(os.listdir(tmp_path / FOLDER)) == sorted([*SKILLS, ".skillgen.json", ".skillgen-other"])
