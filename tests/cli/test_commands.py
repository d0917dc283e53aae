"""Every command on a miniature tree: what it says, what it writes, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from skillgen.cli.parser import main
from skillgen.engine.plan import RENEWED
from skillgen.kernel import resources
from tests.cli.trees import MODEL, PROVIDER, SECOND, Skillgen, git, snapshot, write

T = "vision-dp-over-cp"


def test_list_names_the_techniques(skillgen: Skillgen) -> None:
    listed = [row["technique"] for row in skillgen("list")[1]["rows"]]
    skills = [path.name for path in sorted((Path(__file__).parents[2] / "skills").iterdir())]
    assert listed == [name for name in skills if name != "skillgen"]  # that one is of the pack as a whole


def test_scan_rows(skillgen: Skillgen, tree: Path) -> None:
    code, answer = skillgen("scan", tree, "--technique", T)
    rows = {row["family"]: row for row in answer["rows"]}
    assert code == 0 and answer["target"] == str(tree)
    assert {family: (row["outcome"], row["plannable"]) for family, row in rows.items()} == {
        "ministral3": ("applicable", True),
        "gemma4_vl": ("applicable", False),
        "qwen25_vl": ("refused", False),
        "qwen3_vl": ("upgrade", False),
    }
    for row in rows.values():
        assert row["technique"] == T and row["reason"] and row["evidence"]
        for place in row["evidence"]:
            path, _, line = place.rpartition(":")
            assert int(line) <= len((tree / path).read_text().splitlines())
    assert [row["family"] for row in skillgen("scan", tree, "--family", "qwen25_vl")[1]["rows"]] == ["qwen25_vl"]
    assert {row["technique"] for row in skillgen("scan", tree)[1]["rows"]} > {T}
    assert skillgen("scan", tree, "--technique", "no-such")[1]["error"]["code"] == "unknown-technique"


def test_plan_writes_nothing_but_the_patch(skillgen: Skillgen, checkout: Path, tmp_path: Path) -> None:
    before = snapshot(checkout)
    code, answer = skillgen("plan", T, checkout, "--output", tmp_path / "x.patch")
    assert code == 0 and snapshot(checkout) == before
    (row,) = answer["rows"]
    assert row["family"] == "ministral3" and f"src/megatron/bridge/{MODEL}" in row["files"]
    assert 0 < row["edited_code_lines"] <= 40 < row["changed_lines"]

    git(checkout, "apply", "--check", str(tmp_path / "x.patch"))
    git(checkout, "apply", str(tmp_path / "x.patch"))
    by_git = snapshot(checkout)
    git(checkout, "reset", "-q", "--hard")
    git(checkout, "clean", "-qfd")
    assert skillgen("apply", T, checkout)[0] == 0
    assert snapshot(checkout) == by_git


@pytest.mark.parametrize("kind", ["tree", "checkout"])
def test_apply_twice_status_and_revert(kind: str, skillgen: Skillgen, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(kind)
    before = snapshot(root)
    assert skillgen("status", root)[1]["rows"] == []

    code, answer = skillgen("apply", T, root)
    assert code == 0 and [(row["family"], row["outcome"]) for row in answer["rows"]] == [("ministral3", "applied")]
    patched = snapshot(root)
    runtime = [name for name in patched.keys() - before.keys() if "vision_sharding/" in name and name.endswith(".py")]
    assert len(runtime) >= 5
    tests = [name for name in patched.keys() - before.keys() if name.startswith("tests/")]
    assert bool(tests) == (kind == "checkout")
    notes = answer["rows"][0]["notes"]
    assert ("no-test-tree" in notes) == ("ruff-not-run" in notes) == (kind == "tree")

    code, answer = skillgen("apply", T, root)
    assert code == 0 and answer["rows"][0]["changed_lines"] == 0 and snapshot(root) == patched
    assert {row["family"]: row["outcome"] for row in skillgen("scan", root)[1]["rows"]}["ministral3"] == "applied"
    assert [(row["family"], row["state"]) for row in skillgen("status", root)[1]["rows"]] == [
        ("ministral3", "applied")
    ]

    assert skillgen("revert", T, root)[1]["rows"][0]["state"] == "reverted"
    assert snapshot(root) == before
    assert skillgen("revert", T, root) == (
        0,
        {"command": "revert", "target": str(root), "ok": True, "exit_code": 0, "rows": [], "error": None},
    )


def test_status_tells_later_edits_and_revert_keeps_them(skillgen: Skillgen, tree: Path) -> None:
    skillgen("apply", T, tree)
    model = tree / "megatron/bridge" / MODEL
    model.write_text(model.read_text().replace('"""One step."""', '"""One step of ours."""'))
    (row,) = skillgen("status", tree)[1]["rows"]
    assert row["state"] == "edited-since"
    assert skillgen("revert", T, tree)[0] == 0
    assert "One step of ours" in model.read_text() and "vision_sharding" not in model.read_text()


@pytest.mark.parametrize("family", [[], ["--family", "ministral3"]])
def test_a_patch_without_a_receipt_is_told(
    family: list[str], skillgen: Skillgen, checkout: Path, tmp_path: Path
) -> None:
    patch = tmp_path / "x.patch"
    assert skillgen("plan", T, checkout, "--output", patch)[0] == 0
    git(checkout, "apply", str(patch))
    before = snapshot(checkout)
    (row,) = skillgen("status", checkout)[1]["rows"]
    assert (row["family"], row["state"], row["files"]) == ("ministral3", "no-receipt", [])
    code, answer = skillgen("revert", T, checkout, *family)
    assert (code, answer["error"]["code"]) == (3, "no-receipt")
    assert skillgen("apply", T, checkout)[0] == 0
    assert snapshot(checkout) == before


def test_the_patched_checkout_is_clean_under_its_own_ruff(skillgen: Skillgen, checkout: Path) -> None:
    from skillgen.kernel.checks import find_ruff

    ruff = find_ruff()
    if ruff is None:
        pytest.skip("ruff is not installed")
    assert skillgen("apply", T, checkout)[0] == 0
    git(checkout, "add", "-N", ".")
    names = git(checkout, "diff", "--name-only").split()
    python = [name for name in names if name.endswith(".py") and (checkout / name).read_text()]
    assert len(python) > 6
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *command, "--no-cache", *python], cwd=checkout, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_what_ruff_said_before_does_not_count(skillgen: Skillgen, checkout: Path) -> None:
    model = checkout / "src/megatron/bridge" / MODEL
    model.write_text(model.read_text().replace("import torch\n", "import os\nimport torch\nimport   sys\n"))
    git(checkout, "commit", "-qam", "unclean")
    assert skillgen("apply", T, checkout)[0] == 0


def test_a_newer_pack_replaces_its_older_patch(
    skillgen: Skillgen, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(tree)
    with monkeypatch.context() as older:
        sources = {**resources.runtime_sources(("api", "image_batch")), "gone.py": "OLD = 1\n", "plan.py": "OLD = 1\n"}
        older.setattr(resources, "runtime_sources", lambda *_, **__: sources)
        older.setattr(resources, "version", lambda: "0.0.1")
        assert skillgen("apply", T, tree)[0] == 0
    old = snapshot(tree)
    assert skillgen("plan", T, tree)[1]["rows"][0]["changed_lines"] > 0
    assert snapshot(tree) == old
    assert skillgen("apply", T, tree)[0] == 0
    new = snapshot(tree)
    assert not [name for name in new if name.endswith("vision_sharding/gone.py")]
    assert skillgen("status", tree)[1]["rows"][0]["pack_version"] == resources.version()
    assert skillgen("revert", T, tree)[0] == 0
    assert snapshot(tree) == before
    assert skillgen("apply", T, tree)[0] == 0
    assert snapshot(tree).keys() == new.keys()


def test_a_second_family_renews_an_older_packs_first(
    skillgen: Skillgen, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tree / "megatron/bridge", SECOND)
    before = snapshot(tree)
    with monkeypatch.context() as older:
        sources = {**resources.runtime_sources(("api", "image_batch")), "gone.py": "OLD = 1\n", "plan.py": "OLD = 1\n"}
        del sources["forms.py"]
        older.setattr(resources, "runtime_sources", lambda *_, **__: sources)
        older.setattr(resources, "version", lambda: "0.0.1")
        assert skillgen("apply", T, tree, "--family", "ministral3")[0] == 0
    code, answer = skillgen("apply", T, tree, "--family", "qwen3_omni")
    assert code == 0
    notes = {row["family"]: row["notes"] for row in answer["rows"]}
    assert [family for family in notes if RENEWED in notes[family]] == ["ministral3"]
    both = snapshot(tree)
    rows = skillgen("status", tree)[1]["rows"]
    assert {(row["state"], row["pack_version"]) for row in rows} == {("applied", resources.version())}
    assert skillgen("revert", T, tree, "--family", "qwen3_omni")[0] == 0
    one = snapshot(tree)
    assert skillgen("revert", T, tree)[0] == 0
    assert snapshot(tree) == before
    assert skillgen("apply", T, tree, "--family", "ministral3")[0] == 0
    assert snapshot(tree) == one
    assert skillgen("apply", T, tree)[0] == 0
    assert snapshot(tree).keys() == both.keys()
    assert skillgen("revert", T, tree, "--family", "ministral3")[0] == 0
    assert skillgen("revert", T, tree, "--family", "qwen3_omni")[0] == 0
    assert snapshot(tree) == before


def test_doctor_says_what_each_absence_means(skillgen: Skillgen, tree: Path) -> None:
    code, answer = skillgen("doctor", tree)
    rows = {row["check"]: row for row in answer["rows"]}
    assert code == 0 and rows["python"]["state"] == "ok"
    assert "no tests" in rows["test tree"]["means"]
    assert all(row["means"] for row in rows.values() if row["state"] != "ok")
    assert skillgen("doctor")[0] == 0
    assert skillgen("doctor", tree.parent)[1]["rows"][-1]["state"] == "problem"


@pytest.mark.parametrize("command", ["list", "scan", "plan", "apply", "status", "revert", "doctor"])
def test_people_get_text(command: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    technique = [T] if command in {"plan", "apply", "revert"} else []
    assert main([command, *technique, *([] if command == "list" else [str(tree)])]) == 0
    said = capsys.readouterr()
    assert said.out.strip() and not said.err
    with pytest.raises(json.JSONDecodeError):
        json.loads(said.out)
    if command == "plan":
        assert f"+++ b/megatron/bridge/{PROVIDER}" in said.out and "more lines of this new file" in said.out


def test_the_diff_shows_a_new_file_below_its_copyright_header(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "megatron/bridge/models/model_provider.py").write_text("# Copyright (c) 2025 X.\n#\n# Terms.\n\nA = 1\n")
    assert main(["plan", T, str(tree)]) == 0
    said = capsys.readouterr().out
    assert '+"""Vision-encoder sharding' in said and "Terms." not in said


def test_a_reader_that_has_seen_enough(tree: Path) -> None:
    command = f"{sys.executable} -m skillgen plan {T} {tree} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0" and "Traceback" not in done.stderr
