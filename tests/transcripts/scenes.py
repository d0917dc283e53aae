"""What the tables of troubles name for every technique alike, shown on small trees where they will do."""

from __future__ import annotations

import re
import sys

import pytest

from skillgen.cli import commands
from skillgen.kernel.checks import find_ruff
from tests.cli.trees import MODEL, git, snapshot
from tests.transcripts.stage import Stage, option, shows

T = "vision-dp-over-cp"
MOVED = {  # file, and what in it a patch holds on to
    "skillgen": (MODEL, "class Ministral3Model("),
    T: (MODEL, "class Ministral3Model("),
    "blockdiag-gqa": ("components/models/qwen3_5_moe/model.py", "cp_blockdiag_sdpa("),
    "hierarchical-cp": ("models/model_provider.py", "def initialize_model_parallel("),
    "vision-tp-dp": ("models/qwen_vl/modelling_qwen3_vl/model.py", "self.vision_model("),
}


@shows("skillgen", "exit 2, `not-a-target`")
def another_folder(stage: Stage, do: str) -> None:
    tree = stage.miniature("src/deep")
    error = stage.refused(2, "not-a-target", "scan", stage.folder / "src")
    assert "`where`" in do and error["where"] == str(stage.folder / "src")
    assert "megatron/bridge/__init__.py" in error["message"]  # what the folder to be named holds
    assert stage.done("scan", tree)


@shows("skillgen", "exit 3, `nothing-to-patch`")
def another_product(stage: Stage, do: str) -> None:
    tree = stage.miniature()
    stage.refused(3, "nothing-to-patch", "plan", "vision-frame-sharding", tree)
    plannable = {row["technique"] for row in stage.follow(do, TARGET=tree) if row["plannable"]}
    assert plannable == {T}
    stage.done("plan", T, tree)


@shows("skillgen", "exit 3, `dirty`")
@shows(T, "exit 3, `dirty`")
def dirty(stage: Stage, do: str) -> None:
    tree = stage.checkout()
    model = tree / "megatron/bridge" / MODEL
    model.write_text(model.read_text() + "\n# mine\n")
    error = stage.refused(3, "dirty", "apply", T, tree)
    assert error["where"] == f"megatron/bridge/{MODEL}" and do.startswith("commit them, or give ")
    stage.done("apply", T, tree, option(do))
    stage.done("revert", T, tree)
    git(tree, "commit", "-q", "-a", "-m", "mine")
    stage.done("apply", T, tree)


@shows("skillgen", "exit 3, `no-receipt`")
def a_patch_that_came_with_a_commit(stage: Stage, do: str) -> None:
    tree, clone = stage.checkout(), stage.folder / "clone"
    before = snapshot(tree)
    stage.done("apply", T, tree)
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "the patch")
    git(stage.folder, "clone", "-q", str(tree), str(clone))
    stage.refused(3, "no-receipt", "revert", T, clone)
    assert do == "take it back with git"
    git(clone, "revert", "--no-edit", "HEAD")
    assert snapshot(clone) == before and stage.done("status", clone) == []


@shows("skillgen", "exit 4, `anchor-moved`")
@shows(T, "exit 4, `anchor-moved`")
@shows("blockdiag-gqa", "exit 4, `anchor-moved`")
@shows("hierarchical-cp", "exit 4, `anchor-moved`")
@shows("vision-tp-dp", "exit 4, `anchor-moved`")
def moved(stage: Stage, do: str) -> None:
    tree = stage.example()
    place, anchor = MOVED[stage.skill]
    (file,) = tree.glob(f"*/**/{place}")
    text = file.read_text()
    assert anchor in text
    file.write_text(text.replace(anchor, anchor.replace("(", "_elsewhere(")))
    words = ["plan", stage.technique, tree] + (["--family", "ministral3"] if stage.technique == T else [])
    error = stage.refused(4, "anchor-moved", *words)
    assert "report the candidates" in do or "reported candidates" in do
    assert re.search(r"\.py:\d+", error["where"] + error["message"]) and "verified" in error["message"] + error["hint"]
    file.write_text(text)  # a version that is supported
    stage.done(*words)


@shows("skillgen", "exit 5 on revert")
@shows(T, "exit 5 on revert")
@shows("hierarchical-cp", "exit 5 on revert")
@shows("vision-frame-sharding", "exit 5 on revert")
@shows("vision-tp-dp", "exit 5 on revert")
def later_edits(stage: Stage, do: str) -> None:
    tree = stage.example()
    before = snapshot(tree)
    only = ["--family", "qwen3_5_moe"] if stage.skill == "vision-frame-sharding" else []
    rows = stage.done("apply", stage.technique, tree, "--no-lint", *only)
    edited = [tree / name for row in rows for name in row["files"] if name.endswith(".py") and name in before]
    file = edited[0]
    patched, old = file.read_text(), str(before[str(file.relative_to(tree))], "utf-8").splitlines()  # type: ignore[call-overload]
    ours = next(line for line in patched.splitlines() if line.strip() and line not in old)
    file.write_text(patched.replace(f"{ours}\n", f"{ours}  # mine\n"))
    error = stage.refused(5, "conflict", "revert", stage.technique, tree)
    assert error["where"].startswith(str(file.relative_to(tree))) and re.match(r"undo (those|those edits) first", do)
    file.write_text(patched)
    stage.done("revert", stage.technique, tree)
    assert snapshot(tree) == before


@shows("skillgen", "exit 70")
def a_defect(stage: Stage, do: str) -> None:
    def broken(args: object) -> None:
        raise ZeroDivisionError("oops")

    stage.patch.setitem(commands.COMMANDS, "scan", broken)
    tree = stage.miniature()
    stage.refused(70, "internal", "scan", tree)
    name, value = re.findall(r"`(\w+)=(\d)`", do)[0]
    assert "Traceback" not in stage.stderr
    stage.patch.setenv(name, value)
    assert stage.say("scan", tree)["exit_code"] == 70 and "Traceback" in stage.stderr


@shows(T, "exit 3, `ruff-findings`")
def lint(stage: Stage, do: str) -> None:
    if find_ruff() is None:
        pytest.skip("ruff is not installed")
    tree = stage.checkout(ruff='[lint]\nselect = ["ANN001"]\n')
    stage.refused(3, "ruff-findings", "apply", T, tree)
    stage.done("apply", T, tree, option(do))


@shows(T, "exit 3, `not-applied`")
def not_applied(stage: Stage, do: str) -> None:
    tree = stage.miniature()
    asked = ["eval", T, tree, "--family", "qwen3_omni", "--python", bare(stage)]
    error = stage.refused(3, "not-applied", *asked)
    assert "the `--family` of the hint" in do and error["hint"].endswith(" --family qwen3_omni")
    stage.follow(error["hint"])
    assert [row["family"] for row in stage.done("status", tree)] == ["qwen3_omni"]
    stage.refused(2, "missing-dependency", *asked)  # past that gate


@shows("skillgen", "exit 2, `missing-dependency`")
def no_torch(stage: Stage, do: str) -> None:
    tree = stage.miniature()
    stage.done("apply", T, tree)
    error = stage.refused(2, "missing-dependency", "eval", T, tree, "--python", bare(stage))
    assert "`hint`" in do and "torch" in error["message"] and error["hint"].startswith("pip install torch")
    error = stage.refused(2, "missing-dependency", "eval", T, tree, option(do), sys.executable)
    assert "torch" not in error["message"] and "--mcore" in error["hint"]


@shows(T, "exit 2, `missing-dependency`")
def no_megatron_core(stage: Stage, do: str) -> None:
    tree = stage.miniature()
    stage.done("apply", T, tree)
    asked = ["eval", T, tree, "--kind", "upstream-tests"]  # which a wheel does not bring: nothing takes long
    error = stage.refused(2, "missing-dependency", *asked)
    spec, folder = re.findall(r"skillgen fetch (\S+) (\S+),", error["hint"])[0]
    stage.refused(1, "nothing-proven", *asked, option(do), stage.fetch(spec, folder))


@shows(T, "vision work does not fall; the log says once that the flag is off")
def switched_off(stage: Stage, do: str) -> None:
    tree = stage.miniature()
    stage.done("apply", T, tree)
    recipe = tree / "megatron/bridge/recipes/ministral3/ministral3.py"
    recipe.parent.mkdir(parents=True)
    for size, state in ((1, "problem"), (2, "ok")):
        recipe.write_text(f"cfg.model.context_parallel_size = {size}\n")
        rows = {row["check"]: row for row in stage.follow(do, TARGET=tree)}
        assert rows["recipes ministral3"]["state"] == state


def bare(stage: Stage) -> str:
    """A Python without packages."""
    script = stage.folder / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    script.chmod(0o755)
    return str(script)
