"""Every failure has a code, an exit code and a place, and leaves the target as it was."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from pathlib import Path

import pytest

from skillgen.cli import commands
from skillgen.cli.parser import main
from tests.cli.trees import MODEL, PROVIDER, Skillgen, git, snapshot

T = "vision-dp-over-cp"
PLACE = f"megatron/bridge/{MODEL}"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


USAGE = {
    "no command": ([], "usage"),
    "unknown command": (["frobnicate"], "usage"),
    "unknown option": (["scan", "--deep", "TREE"], "usage"),
    "missing target": (["plan", T], "usage"),
    "not a target": (["scan", "/"], "not-a-target"),
    "no such path": (["scan", "/nonexistent"], "not-a-target"),
    "unknown technique": (["apply", "ring-attention", "TREE"], "unknown-technique"),
    "unknown family": (["plan", T, "TREE", "--family", "clip"], "unknown-family"),
    "unknown family of revert": (["revert", T, "PATCHED", "--family", "clip"], "unknown-family"),
    "unknown family of scan": (["scan", "TREE", "--family", "clip"], "unknown-family"),
    "too few ranks": (["eval", T, "PATCHED", "--nproc", "1"], "too-few-ranks"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_errors_end_with_2(case: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, code = USAGE[case]
    if "PATCHED" in words:
        main(["apply", T, str(tree)])
        capsys.readouterr()
    before = snapshot(tree)
    arguments = [str(tree) if word in {"TREE", "PATCHED"} else word for word in words]
    assert main([*arguments, "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"]["code"] == code and answer["command"] == (words or [""])[0]
    assert main(arguments) == 2
    assert code in capsys.readouterr().err
    assert snapshot(tree) == before


@pytest.mark.parametrize("command", ["plan", "apply"])
@pytest.mark.parametrize(
    ("family", "code"),
    [("qwen25_vl", "no-context-parallel"), ("gemma4_vl", "no-adapter-yet"), ("qwen3_vl", "sharded-already")],
)
def test_a_family_that_cannot_be_patched(command: str, family: str, code: str, skillgen: Skillgen, tree: Path) -> None:
    before = snapshot(tree)
    exit_code, answer = skillgen(command, T, tree, "--family", "ministral3", "--family", family)
    assert (exit_code, answer["error"]["code"]) == (3, code)
    assert family in answer["error"]["message"] and answer["error"]["where"]
    assert snapshot(tree) == before


MOVED = {
    "the call": ("self.get_image_features(pixel_values, image_sizes=image_sizes)", "self.see(pixel_values)"),
    "the class": ("class Ministral3Model(", "class MinistralThree("),
    "a statement of __init__": ("self.vp_stage = vp_stage", "self._vp_stage = vp_stage"),
    "a method to follow": ("def set_input_tensor(", "def put_input_tensor("),
}


@pytest.mark.parametrize("case", MOVED)
@pytest.mark.parametrize("named", [True, False])
def test_an_anchor_that_moved(case: str, named: bool, skillgen: Skillgen, tree: Path) -> None:
    edit(tree / PLACE, *MOVED[case])
    before = snapshot(tree)
    code, answer = skillgen("apply", T, tree, *(["--family", "ministral3"] if named else []))
    error = answer["error"]
    assert (code, error["code"]) == (4, "anchor-moved")
    assert error["where"].startswith(PLACE) and "verified against" in error["message"] + error["hint"]
    assert snapshot(tree) == before
    assert skillgen("scan", tree)[0] == 0


def test_a_dirty_checkout(skillgen: Skillgen, checkout: Path) -> None:
    model = checkout / "src" / PLACE
    model.write_text(model.read_text() + "\n# mine\n")
    before = snapshot(checkout)
    code, answer = skillgen("apply", T, checkout)
    assert (code, answer["error"]["code"], answer["error"]["where"]) == (3, "dirty", f"src/{PLACE}")
    assert snapshot(checkout) == before and "--allow-dirty" in answer["error"]["hint"]
    assert skillgen("apply", T, checkout, "--allow-dirty")[0] == 0
    assert skillgen("revert", T, checkout)[0] == 0
    assert snapshot(checkout) == before


def test_a_checkout_that_git_cannot_read(skillgen: Skillgen, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    before = snapshot(checkout)
    code, answer = skillgen("apply", T, checkout)
    assert (code, answer["error"]["code"]) == (3, "git") and "--allow-dirty" in answer["error"]["hint"]
    assert snapshot(checkout) == before
    assert skillgen("apply", T, checkout, "--allow-dirty")[0] == 0
    assert skillgen("revert", T, checkout)[0] == 0
    assert snapshot(checkout) == before


def test_a_change_elsewhere_in_the_checkout_is_no_dirt(skillgen: Skillgen, checkout: Path) -> None:
    (checkout / "src/megatron/bridge/__init__.py").write_text("# mine\n")
    assert skillgen("apply", T, checkout)[0] == 0
    assert "skillgen" not in git(checkout, "status", "--porcelain", "--untracked-files=all")


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_a_read_only_folder(command: str, skillgen: Skillgen, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if command == "revert":
        skillgen("apply", T, tree)
    before = snapshot(tree)
    access, locked = os.access, (tree / PLACE).parent
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != locked and access(path, mode))
    code, answer = skillgen(command, T, tree)
    assert (code, answer["error"]["code"]) == (6, "read-only")
    assert answer["error"]["where"] == str(locked.relative_to(tree))
    assert snapshot(tree) == before


@pytest.mark.parametrize(
    ("number", "does"),
    [(errno.EROFS, "mount"), (errno.EACCES, "writable"), (errno.ENOSPC, "free space"), (errno.EDQUOT, "quota")],
    ids=errno.errorcode.get,
)
def test_a_tree_that_takes_no_receipts(
    number: int, does: str, skillgen: Skillgen, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(path: Path, *rest: object, **more: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    before = snapshot(tree)
    monkeypatch.setattr(Path, "mkdir", mkdir)
    code, answer = skillgen("apply", T, tree)
    assert (code, answer["error"]["code"], answer["error"]["where"]) == (6, "read-only", str(tree))
    assert os.strerror(number) in answer["error"]["message"] and does in answer["error"]["hint"]
    assert snapshot(tree) == before


@pytest.mark.parametrize(("command", "nth"), [("apply", 1), ("apply", 4), ("apply", 7), ("revert", 1), ("revert", 2)])
def test_a_full_disk_midway(
    command: str, nth: int, skillgen: Skillgen, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command == "revert":
        skillgen("apply", T, tree)
    before = snapshot(tree)
    calls, write = itertools.count(1), os.write

    def full(fd: int, data: bytes) -> int:
        if os.fstat(fd).st_size == 0 and next(calls) >= nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        code, answer = skillgen(command, T, tree)
    assert code == 6 and "No space left" in answer["error"]["message"] and "free space" in answer["error"]["hint"]
    assert snapshot(tree) == before
    assert skillgen(command, T, tree)[0] == 0


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_symlink_out_of_the_tree(link: str, skillgen: Skillgen, tree: Path, tmp_path: Path) -> None:
    path = tree / PLACE if link == "file" else (tree / PLACE).parent
    shutil.move(path, tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    before = snapshot(tmp_path)
    code, answer = skillgen("apply", T, tree, "--family", "ministral3")
    assert code == 3 and "symlink" in answer["error"]["code"], answer
    assert snapshot(tmp_path) == before


def test_a_syntax_error_in_a_targets_file(skillgen: Skillgen, tree: Path) -> None:
    edit(tree / PLACE, "def forward(self, input_ids", "def forward(self input_ids")
    before = snapshot(tree)
    code, answer = skillgen("apply", T, tree, "--family", "ministral3")
    assert (code, answer["error"]["code"]) == (3, "syntax-error")
    assert answer["error"]["where"].startswith(f"{PLACE}:")
    assert snapshot(tree) == before and skillgen("scan", tree)[0] == 0


def test_a_syntax_error_in_the_providers_file(skillgen: Skillgen, tree: Path) -> None:
    edit(tree / "megatron/bridge" / PROVIDER, "def provide(self)", "def provide(self")
    code, answer = skillgen("apply", T, tree, "--family", "ministral3")
    assert (code, answer["error"]["code"]) == (3, "syntax-error")


def test_a_file_in_the_way(skillgen: Skillgen, tree: Path) -> None:
    own = tree / "megatron/bridge/models/common/vision_sharding/plan.py"
    own.parent.mkdir(parents=True)
    own.write_text("mine = 1\n")
    before = snapshot(tree)
    code, answer = skillgen("apply", T, tree)
    assert (code, answer["error"]["code"]) == (3, "file-exists")
    assert snapshot(tree) == before


def test_a_revert_after_edits_that_overlap(skillgen: Skillgen, tree: Path) -> None:
    skillgen("apply", T, tree)
    edit(tree / PLACE, "self.vision_dp_over_cp = ", "self.vision_dp_over_cp = True or ")
    before = snapshot(tree)
    code, answer = skillgen("revert", T, tree)
    assert (code, answer["error"]["code"]) == (5, "conflict")
    assert answer["error"]["where"].startswith(PLACE) and snapshot(tree) == before


def test_new_ruff_findings_are_refused(skillgen: Skillgen, checkout: Path) -> None:
    from skillgen.kernel.checks import find_ruff

    if find_ruff() is None:
        pytest.skip("ruff is not installed")
    (checkout / "ruff.toml").write_text('line-length = 119\n[lint]\nselect = ["ANN001"]\n')
    before = snapshot(checkout)
    code, answer = skillgen("apply", T, checkout)
    assert (code, answer["error"]["code"]) == (3, "ruff-findings")
    assert snapshot(checkout) == before and "--no-lint" in answer["error"]["hint"]
    assert skillgen("apply", T, checkout, "--no-lint")[0] == 0


def test_an_eval_of_what_is_not_patched(skillgen: Skillgen, tree: Path) -> None:
    for more in ([], ["--family", "ministral3"]):
        code, answer = skillgen("eval", T, tree, *more)
        assert (code, answer["error"]["code"]) == (3, "not-applied") and "skillgen apply" in answer["error"]["hint"]


def test_a_defect_of_ours(
    tree: Path, skillgen: Skillgen, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(args: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(commands.COMMANDS, "scan", broken)
    code, answer = skillgen("scan", tree)
    assert (code, answer["error"]["code"], answer["error"]["message"]) == (70, "internal", "ZeroDivisionError: oops")
    assert main(["scan", str(tree)]) == 70
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("SKILLGEN_DEBUG", "1")
    assert main(["scan", str(tree)]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_an_output_file_that_cannot_be_written(skillgen: Skillgen, tree: Path) -> None:
    code, answer = skillgen("plan", T, tree, "--output", tree / "no" / "such" / "folder.patch")
    assert (code, answer["error"]["code"]) == (6, "io") and answer["error"]["where"].endswith("folder.patch")
    assert "folder" in answer["error"]["hint"]
