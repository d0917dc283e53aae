"""What cannot be patched is told with the reason, the place and a next step that leads somewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.engine import refusals
from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.target import discover
from tests.cli.trees import Skillgen

T = "vision-dp-over-cp"
CARD = {
    "main": {"megatron-bridge": "abc1234", "automodel": "def5678"},
    "techniques": [
        {
            "name": "sharding",
            "targets": [
                {"product": "megatron-bridge", "releases": ["1.0"], "families": ["a"]},
                {"product": "megatron-bridge", "releases": ["2.0", "main"], "families": ["a", "b"]},
            ],
        },
        {"name": "frames", "targets": [{"product": "automodel", "releases": ["1.0"], "families": ["a"]}]},
    ],
}
RELEASES = Path(os.environ.get("SKILLGEN_RELEASES", "/nonexistent"))


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card of few words."""
    monkeypatch.setattr(refusals, "_card", lambda: CARD)


def row(family: str, outcome: Outcome = Outcome.REFUSED, reason: str = "no-cp", **more: Any) -> Row:
    return Row("sharding", family, outcome, reason, f"{reason} it is", (f"{family}.py:1",), **more)


def told(tree: Path, refused: list[Row], *others: Row, named: bool = False) -> SkillgenError:
    return refusals.refusal(discover(tree), "sharding", [*refused, *others], refused, named=named)


@pytest.mark.usefixtures("card")
def test_one_family(tree: Path) -> None:
    error = told(tree, [row("b")])
    assert error.as_json() == {
        "code": "nothing-to-patch",
        "message": "no family of this target can be patched: b is refused (no-cp): no-cp it is",
        "where": "b.py:1",
        "hint": "use a supported release: megatron-bridge 2.0, main (abc1234)",
    }
    named = told(tree, [row("b")], row("a", Outcome.APPLICABLE, plannable=True), named=True)
    assert (named.code, named.message, named.where) == ("no-cp", "b is refused: no-cp it is", "b.py:1")
    assert named.hint == f"{error.hint}; can be patched here: a"


@pytest.mark.usefixtures("card")
def test_few_families_come_with_their_places_and_many_in_groups(tree: Path) -> None:
    many = [row(f"f{number}") for number in range(refusals.FEW + 1)]
    error = told(tree, [*many, row("a", reason="cut"), row("g", Outcome.APPLICABLE)])
    assert error.message.splitlines() == [
        "no family of this target can be patched:",
        "  f0, f1, f2, f3 are refused (no-cp): no-cp it is",
        "  a (a.py:1) is refused (cut): cut it is",
        "  g (g.py:1) is applicable (no-adapter-yet): the technique applies, but this version cannot write the patch",
    ]
    assert error.where == "f0.py:1; a.py:1; g.py:1"
    assert error.hint.startswith("use a supported release: megatron-bridge 1.0, 2.0, main (abc1234); an adapter")
    assert told(tree, many[:2]).message.endswith("f0 (f0.py:1), f1 (f1.py:1) are refused (no-cp): no-cp it is")


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("named", [True, False])
def test_a_drift_comes_first_and_gives_the_code(tree: Path, named: bool) -> None:
    moved = row("a", Outcome.DRIFT, "anchor-moved", notes=("sought: x", "verified: 1.0"))
    error = told(tree, [row("b"), moved], named=named)
    assert (error.code, error.exit_code, error.where) == ("anchor-moved", 4, "a.py:1; b.py:1")
    assert error.message.startswith("a (a.py:1) is drift (anchor-moved): ") and "\n  b (b.py:1) is" in error.message
    assert error.hint.startswith("sought: x; verified: 1.0; use a supported release: megatron-bridge 1.0, 2.0")


@pytest.mark.usefixtures("card")
def test_what_no_release_has(tree: Path) -> None:
    assert told(tree, [row("c")], named=True).hint.startswith("report the reason: no release")
    hint = refusals.unknown(discover(tree), "sharding", "b", ["c", "d"]).hint
    assert hint == "one of: c, d; for b use a supported release: megatron-bridge 2.0, main (abc1234)"
    assert refusals.unknown(discover(tree), "sharding", "clip", ["c", "d"]).hint == "one of: c, d"


@pytest.mark.usefixtures("card")
def test_a_target_with_nothing_that_the_technique_knows(tree: Path) -> None:
    other = refusals.absent(discover(tree), "frames", ["automodel"])
    assert other.message == "frames is for automodel, and this is megatron-bridge (version unknown)"
    assert other.where == str(tree / "megatron/bridge")
    assert other.hint == f"techniques for megatron-bridge: sharding; see `skillgen scan {tree}`"
    same = refusals.absent(discover(tree), "sharding", ["automodel", "megatron-bridge"])
    assert same.message == "sharding finds none of its families in this megatron-bridge (version unknown)"
    assert same.hint == "use a supported release: megatron-bridge 1.0, 2.0, main (abc1234)"
    assert refusals.absent(discover(tree), "new", ["megatron-bridge"]).hint  # on no card yet


@pytest.mark.usefixtures("card")
def test_the_targets_own_release_is_no_way_out(tree: Path) -> None:
    (tree / "megatron/bridge/package_info.py").write_text('__version__ = "2.0"\n')
    assert told(tree, [row("b")]).hint == "use a supported release: megatron-bridge main (abc1234)"


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_every_family_is_told_of(
    command: str, skillgen: Skillgen, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(tree / "megatron/bridge/models/ministral3")
    error = skillgen(command, T, tree)[1]["error"]
    assert error["code"] == "nothing-to-patch" and error["hint"]
    rows = skillgen("scan", tree, "--technique", T)[1]["rows"]
    assert {r["outcome"] for r in rows} == {"refused", "applicable", "upgrade"}
    assert all(r["family"] in error["message"] and r["evidence"][0] in error["where"] for r in rows)
    assert main([command, T, str(tree)]) == 3
    said = capsys.readouterr().err
    assert error["message"] in said and "  where: " in said and "  hint: " in said


@pytest.mark.parametrize("release", ["0.3.1", "0.4.2"])
@pytest.mark.parametrize("named", [["--family", "qwen3_vl"], []])
def test_a_release_before_the_technique(release: str, named: list[str], skillgen: Skillgen) -> None:
    tree = RELEASES / f"bridge-{release}"
    if not tree.is_dir():
        pytest.skip("SKILLGEN_RELEASES names no folder with this release")
    (told,) = skillgen("scan", tree, "--technique", "vision-tp-dp")[1]["rows"]
    code, answer = skillgen("plan", "vision-tp-dp", tree, *named)
    error = answer["error"]
    assert (code, error["code"], error["where"]) == (
        3,
        told["reason"] if named else "nothing-to-patch",
        told["evidence"][0],
    )
    assert told["detail"] in error["message"] and (named or told["reason"] in error["message"])
    assert error["hint"].startswith("use a supported release: megatron-bridge ") and "0.6.2, main (" in error["hint"]
