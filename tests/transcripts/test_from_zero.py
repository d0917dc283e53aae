"""A client that reads skills alone gets from a user's sentence to a verified patch, and back, for each technique."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from skillgen.engine import registry
from skillgen.kernel import resources
from tests.cli.trees import SECOND, snapshot, write
from tests.transcripts.client import Client, TurnedAway, command_line, over_the_server
from tests.transcripts.conftest import Fetch
from tests.transcripts.skilltext import Line, Skill, Unclear

pytestmark = pytest.mark.evals

T = "vision-dp-over-cp"
# the kinds of cases that prove most in the least time
KINDS = {
    "blockdiag-gqa": ("crash", "parity"),
    "hierarchical-cp": ("wiring", "checks"),
    T: ("parity",),
    "vision-frame-sharding": ("recipe",),
    "vision-tp-dp": ("groups",),
}
OVER_THE_SERVER = "blockdiag-gqa"  # whose client speaks to `skillgen mcp`, where the SDK is installed


def text(skill: str) -> str:
    return (resources.path("skills") / skill / "SKILL.md").read_text(encoding="utf-8")


def judged(client: Client, skill: Skill, tree: Path, **options: Any) -> list[Line]:
    """Follow the skill to its end, and look after every command what it did to the tree; the commands."""
    before, lines = snapshot(tree), []
    for line, answer in client.follow(skill, **options):
        lines.append(line)
        verbs, rows = {each.verb for each in lines}, answer["rows"]
        applied = "apply" in verbs and "revert" not in verbs
        assert (snapshot(tree) != before) == applied, line.command()
        if line.verb == "apply":
            assert rows and all(row["outcome"] == "applied" and row["files"] for row in rows)
        elif line.verb == "status":
            assert {row["state"] for row in rows} == ({"applied"} if applied else set())
        elif line.verb == "eval":
            assert applied and "passed" in {row["status"] for row in rows} <= {"passed", "skipped"}
            assert (tree.parent / dict(line.options)["--report"] / "report.html").is_file()
    return lines


@pytest.mark.parametrize("technique", registry.names())
def test_from_a_sentence_to_a_verified_patch_and_back(
    technique: str, pack: Skill, fetch: Fetch, tmp_path: Path
) -> None:
    server = technique == OVER_THE_SERVER and find_spec("mcp")
    with over_the_server(tmp_path) if server else nullcontext(command_line(tmp_path)) as say:
        client = Client(pack, say)
        said = [row for row in pack.rows("Purpose") if row[-1] == f"`{technique}`"]
        assert said and all(client.technique(row[0]) == technique for row in said)
        skill = client.skill(technique, tmp_path)
        session = skill.from_nothing()
        tree, *_ = [fetch(*line.words) for line in session if line.verb == "fetch"]
        lines = judged(client, skill, tree, more=[word for kind in KINDS[technique] for word in ("--kind", kind)])
    loop = [line.verb for line in lines if line.verb not in ("advise", "doctor")]
    assert loop == ["scan", "scan", "plan", "apply", "eval", "status", "revert", "status"]
    assert {line for line in session if line.verb != "fetch"} <= set(lines)  # the example tells the same


def test_a_user_whom_nothing_helps_is_turned_away(pack: Skill) -> None:
    away = [row for row in pack.rows("Purpose") if len(row) == 2]
    assert len(away) > 3
    for sentence, _ in away:
        with pytest.raises(TurnedAway):
            Client(pack, command_line(Path())).technique(sentence)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """What the example of vision-dp-over-cp fetches, as far as its families go."""
    write(tmp_path / "bridge/megatron/bridge", SECOND)
    write(tmp_path / "mcore/megatron/core", {})
    return tmp_path / "bridge"


WRONG = {
    "a command that is none": (f"`skillgen apply {T}", f"`skillgen patch {T}"),
    "another technique": (f"`skillgen plan {T}", "`skillgen plan blockdiag-gqa"),
    "an option that is none": ("TARGET --family NAME`", "TARGET --model NAME`"),
    "a placeholder that no example fills": ("--nproc 2 --report DIR`", "--nproc 2 --report FOLDER --python EXE`"),
    "an argument forgotten": (f"skillgen apply {T} TARGET", f"skillgen apply {T}"),
    "no megatron-core": (" --mcore MCORE --nproc", " --nproc"),
    "too few ranks": ("--nproc 2", "--nproc 1"),
    "a family that is none": ("--family qwen3_omni", "--family qwen9"),
    "a family that cannot be patched": ("--family qwen3_omni", "--family qwen25_vl"),
    "no example from nothing": ("skillgen fetch pypi:", "skillgen get pypi:"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_skill_with_a_mistake_leads_nowhere(wrong: str, pack: Skill, small: Path) -> None:
    old, new = WRONG[wrong]
    assert old in text(T)
    with pytest.raises((Unclear, TurnedAway)):
        judged(Client(pack, command_line(small.parent)), Skill(text(T).replace(old, new)), small)


def test_a_skill_that_forgets_the_way_back_leaves_the_tree_patched(pack: Skill, small: Path) -> None:
    right = Skill(text(T))
    before = snapshot(small)
    client = Client(pack, command_line(small.parent))
    assert "revert" in {line.verb for line in judged(client, right, small, without=["eval"])}
    assert snapshot(small) == before
    wrong = Skill(text(T).replace(f"Undo with `skillgen revert {T} TARGET`", "Undo it"))
    judged(client, wrong, small, without=["eval"])
    assert snapshot(small) != before
