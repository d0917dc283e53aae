"""What the tables of troubles name for one technique, shown on releases."""

from __future__ import annotations

from tests.cli.trees import snapshot
from tests.transcripts.stage import Stage, option, shows

ADVISE = ["advise", "vision-tp-dp", "--model", "qwen3-vl", "--text-tp", "4"]


@shows("blockdiag-gqa", "exit 3, `no-block-diagonal-attention`")
def before_block_diagonal_attention(stage: Stage, do: str) -> None:
    older = stage.fetch("nemo-automodel==0.5.0", "older")
    error = stage.refused(3, "no-block-diagonal-attention", "plan", stage.skill, older, "--family", "qwen3_5_moe")
    assert do == "nothing to repair" and error["where"]
    stage.done("plan", stage.skill, stage.example())


@shows("blockdiag-gqa", "`upstream-has-it`")
def told_already(stage: Stage, do: str) -> None:
    tree = stage.example()
    (file,) = tree.glob("*/components/models/qwen3_5_moe/model.py")
    text, call = file.read_text(), "cp_blockdiag_sdpa(query, key, value, "
    assert text.count(call) == 1
    file.write_text(text.replace(call, f"{call}enable_gqa=True, "))
    before = snapshot(tree)
    (row,) = stage.done("scan", tree, "--technique", stage.skill)
    assert (row["outcome"], row["reason"]) == ("upstream", "upstream-has-it") and do == "nothing to do"
    stage.done("apply", stage.skill, tree)
    assert snapshot(tree) == before


@shows("hierarchical-cp", "exit 3, `groups-unread`")
def groups_that_nobody_reads(stage: Stage, do: str) -> None:
    tree = stage.example()
    file = tree / "megatron/bridge/training/initialize.py"
    text = file.read_text()
    assert text.count("        hcp=None,") == 1
    file.write_text(text.replace("        hcp=None,", "        hcp=tuple(grid.levels()),"))
    error = stage.refused(3, "groups-unread", "plan", stage.skill, tree, "--family", "groups")
    assert do == "patch megatron-core, or report it" and error["where"]
    core = stage.fetch("megatron-core==0.19.2", "core")
    assert [row["family"] for row in stage.done("apply", stage.skill, core)] == ["attention"]


@shows("vision-frame-sharding", "exit 3, `no-such-option` names `--trainable`")
def trains_anyway(stage: Stage, do: str) -> None:
    tree = stage.fetch("nemo-automodel==0.7.0", "newer")
    words = ["plan", stage.skill, tree, "--family", "minimax_m3_vl"]
    error = stage.refused(3, "no-such-option", *words, "--trainable")
    assert "--trainable" in error["message"] and do == "leave the option out"
    stage.done(*words)


@shows("vision-frame-sharding", "the tower gets no gradient with CP on")
def trains_when_asked(stage: Stage, do: str) -> None:
    tree = stage.example()
    rows = stage.done("scan", tree, "--technique", stage.skill, "--family", "qwen3_5_moe")
    assert any("no-gradient-before-cp" in note for note in rows[0]["notes"])
    words = [stage.skill, tree, "--family", "qwen3_5_moe", "--output", stage.folder / "x.patch"]
    stage.done("plan", *words)
    without = (stage.folder / "x.patch").read_text()
    stage.done("plan", *words, option(do))
    assert (stage.folder / "x.patch").read_text() != without


@shows("vision-frame-sharding", "exit 3, `no-context-parallel-hook`")
def no_way_in(stage: Stage, do: str) -> None:
    asked = ["--family", "gemma4_moe"]
    error = stage.refused(3, "no-context-parallel-hook", "plan", stage.skill, stage.example(), *asked)
    assert "use a newer release" in do and error["where"]
    stage.done("plan", stage.skill, stage.fetch("nemo-automodel==0.7.0", "newer"), *asked)


@shows("vision-tp-dp", "`advise` exits 2")
def advice_on_nothing(stage: Stage, do: str) -> None:
    assert do == "change the option that the message names"
    error = stage.refused(2, "no-images", *ADVISE)
    assert "--images" in error["hint"]
    asked = [*ADVISE, "--images", "1024x768x8"]
    stage.done(*asked)
    error = stage.refused(2, "bad-degree", *asked, "--vision-tp", 3)
    assert "--vision-tp" in error["message"]
    stage.done(*asked, "--vision-tp", error["hint"].split(", ")[-1])


@shows("vision-tp-dp", "`advise` exits 3, `no-mode-fits`")
def too_little_memory(stage: Stage, do: str) -> None:
    asked = [*ADVISE, "--memory-gb", 5, "--images"]
    answer = stage.say(*asked, "1024x768x8")
    assert (answer["exit_code"], answer["error"]["code"]) == (3, "no-mode-fits")
    assert {row["outcome"] for row in answer["rows"]} == {
        "too-large"
    } and do == "fewer images a microbatch, or recompute"
    stage.done(*asked, "1024x768")
    stage.done(*asked, "1024x768x8", "--recompute")
