"""Revert after later edits, and beside other families."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from skillgen import ledger
from skillgen.kernel.model import Change
from skillgen.kernel.target import Target
from tests.ledger.trees import (
    ALPHA,
    BETA,
    COMMON,
    RUNTIME,
    TECHNIQUE,
    apply,
    checkout,
    edited,
    git,
    name,
    patch,
    refused,
    runtime,
    snapshot,
    tree,
)

COMMON_PATH = "models/common.py"


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return tree(tmp_path)


def test_edits_elsewhere_survive(target: Target) -> None:
    apply(target, "beta")
    place = target.package / "models/beta.py"
    place.write_bytes(b"# mine\r\n" + place.read_bytes() + b"\r\n# and mine")
    assert ledger.status(target)[0].state == "edited-since"
    ledger.revert(target, TECHNIQUE, "beta")
    assert place.read_bytes() == b"# mine\r\n" + BETA.encode() + b"\r\n# and mine"
    assert not (target.package / "models/shared").exists()


def test_overlap(target: Target) -> None:
    apply(target, "alpha")
    place = target.package / "models/alpha.py"
    place.write_text(place.read_text().replace("self.shard", "self.mine"))
    with refused("conflict", 5, target.root) as caught:
        ledger.revert(target, TECHNIQUE)
    assert caught.value.where == f"{name(target, 'models/alpha.py')}:3"


def test_created_file_edited(target: Target) -> None:
    apply(target, "alpha")
    place = target.package / "models/shared/runtime/plan.py"
    place.write_text(place.read_text() + "# mine\n")
    with refused("conflict", 5, target.root) as caught:
        ledger.revert(target, TECHNIQUE)
    assert caught.value.where == f"{name(target, 'models/shared/runtime/plan.py')}:3"


def test_folder_with_a_file_of_somebody_else_stays(target: Target) -> None:
    apply(target, "alpha")
    (target.package / "models/shared/mine.py").write_text("")
    ledger.revert(target, TECHNIQUE)
    assert [path.name for path in (target.package / "models/shared").iterdir()] == ["mine.py"]


def test_patch_gone_by_git(tmp_path: Path) -> None:
    target = checkout(tmp_path)
    apply(target, "alpha")
    git(target.root, "checkout", "-q", ".")
    assert ledger.status(target)[0].state == "edited-since"
    git(target.root, "clean", "-qfd")
    (target.package / "models/alpha.py").write_text("# newer upstream\n" + ALPHA)
    before = snapshot(target.root)
    assert ledger.status(target)[0].state == "missing"
    assert ledger.revert(target, TECHNIQUE)[0].state == "missing"
    assert snapshot(target.root) == before
    assert not target.state_dir.exists()


def test_patch_gone_with_its_place(target: Target) -> None:
    """Another version is checked out, whose text ends where the patch was."""
    path = target.package / "models/common.py"
    added = edited(target, "models/common.py", ("THREE = 3\n", "THREE = 3\nFOUR = 4\nFIVE = 5\nSIX = 6\n"))
    apply(target, "alpha", [added])
    path.write_bytes(b"from a import f\n\nNEW = 1\n")
    (row,) = ledger.status(target)
    assert row.state == "missing"
    ledger.revert(target, TECHNIQUE)
    assert path.read_bytes() == b"from a import f\n\nNEW = 1\n"
    assert not ledger.status(target)


def test_patch_committed_then_reverted(tmp_path: Path) -> None:
    target = checkout(tmp_path)
    apply(target, "alpha")
    git(target.root, "add", ".")
    git(target.root, "commit", "-qm", "patch")
    ledger.revert(target, TECHNIQUE)
    assert git(target.root, "diff", "--stat", "HEAD~1") == ""


@pytest.mark.parametrize("order", list(itertools.permutations(["alpha", "beta", "gamma"])))
def test_shared_files_go_with_their_last_user(target: Target, order: tuple[str, ...]) -> None:
    before = snapshot(target.root)
    places = {
        "alpha": ("ONE = 1", "ONE = 10"),
        "beta": ("TWO = 2", "TWO = 2\n\n\nBETA = 2"),
        "gamma": ("f\n", "f, g\n"),
    }
    for family, edit in places.items():
        apply(target, family, [edited(target, COMMON_PATH, edit), *runtime(target)])
    for index, family in enumerate(order):
        assert [row.state for row in ledger.status(target)] == ["applied"] * (3 - index)
        assert (target.package / "models/shared/runtime/plan.py").exists()
        ledger.revert(target, TECHNIQUE, family)
        expected = COMMON
        for other in order[index + 1 :]:
            expected = expected.replace(*places[other])
        assert (target.package / COMMON_PATH).read_text() == expected
    assert snapshot(target.root) == before


def _replay(names: str, constant: str) -> object:
    """An import merged into ours, as the edit engine makes it, and a line of the family's own."""

    def replay(path: str, content: bytes | None) -> bytes | None:
        if content is None or not path.endswith(COMMON_PATH):
            return RUNTIME.get(path.partition("bridge/")[2], content)
        text = content.decode()
        head, _, rest = text.partition("\n")
        has = set(head.removeprefix("from r import ").split(", ")) if head.startswith("from r") else set()
        body = rest if has else text
        body = body if constant in body else body + constant
        return f"from r import {', '.join(sorted(has | set(names.split(', '))))}\n{body}".encode()

    return replay


@pytest.mark.parametrize("order", list(itertools.permutations(["alpha", "beta", "gamma"])))
def test_families_that_share_an_edit(target: Target, order: tuple[str, ...]) -> None:
    """All need one import, which the first one makes and the last one takes along."""
    replays = {
        "alpha": _replay("shard", "ALPHA = 1\n"),
        "beta": _replay("shard", "BETA = 1\n"),
        "gamma": _replay("shard", "GAMMA = 1\n"),
    }
    path = name(target, COMMON_PATH)
    before = snapshot(target.root)
    for family in order:
        content = (target.package / COMMON_PATH).read_bytes()
        after = replays[family](path, content)  # type: ignore[operator]
        apply(target, family, [Change(path, content, after), *runtime(target)], replay=replays[family])
    ledger.revert(target, TECHNIQUE, order[0])
    text = (target.package / COMMON_PATH).read_text()
    assert text.startswith("from r import ") and "shard" in text.splitlines()[0]
    assert [f"{family.upper()} = 1" in text for family in order] == [False, True, True]
    ledger.revert(target, TECHNIQUE, order[2])
    assert (target.package / COMMON_PATH).read_bytes() == replays[order[1]](path, COMMON.encode())  # type: ignore[operator]
    ledger.revert(target, TECHNIQUE, order[1])
    assert snapshot(target.root) == before


@pytest.mark.parametrize("first", ["alpha", "beta"])
def test_two_families_in_one_line(target: Target, first: str) -> None:
    replays = {"alpha": _replay("a, shard", "A = 1\n"), "beta": _replay("b, shard", "B = 1\n")}
    path = name(target, COMMON_PATH)
    before = snapshot(target.root)
    for family, replay in replays.items():
        content = (target.package / COMMON_PATH).read_bytes()
        apply(target, family, [Change(path, content, replay(path, content))], replay=replay)  # type: ignore[operator]
    assert (target.package / COMMON_PATH).read_text().startswith("from r import a, b, shard\n")
    ledger.revert(target, TECHNIQUE, first)
    (left,) = replays.keys() - {first}
    assert (target.package / COMMON_PATH).read_bytes() == replays[left](path, COMMON.encode())  # type: ignore[operator]
    ledger.revert(target, TECHNIQUE, left)
    assert snapshot(target.root) == before


def test_edits_between_two_applies_stay(target: Target) -> None:
    apply(target, "alpha", [edited(target, COMMON_PATH, ("ONE = 1", "ONE = 10"))])
    place = target.package / COMMON_PATH
    place.write_text(place.read_text() + "# mine\n")
    apply(target, "beta", [edited(target, COMMON_PATH, ("THREE = 3", "THREE = 30"))])
    ledger.revert(target, TECHNIQUE, "alpha")
    assert place.read_text() == COMMON.replace("THREE = 3", "THREE = 30") + "# mine\n"
    ledger.revert(target, TECHNIQUE, "beta")
    assert place.read_text() == COMMON + "# mine\n"


def test_newer_pack_over_an_older_patch(target: Target) -> None:
    before = snapshot(target.root)
    apply(target, "alpha")
    apply(target, "beta")
    base = ledger.without(target, TECHNIQUE, "alpha")
    model, plan = name(target, "models/alpha.py"), name(target, "models/shared/runtime/plan.py")
    assert base[model] == ALPHA.encode()
    assert base[plan] == (target.root / plan).read_bytes()  # beta needs it still
    newer = [
        Change(model, base[model], ALPHA.replace("return y", "return y + 1").encode()),
        Change(plan, base[plan], b"def plan():\n    return 2\n"),
    ]
    apply(target, "alpha", newer, pack_version="2.0")
    assert (target.root / model).read_bytes() == newer[0].after
    states = {row.family: (row.state, row.pack_version) for row in ledger.status(target)}
    assert states == {"alpha": ("applied", "2.0"), "beta": ("applied", "1.0")}
    ledger.revert(target, TECHNIQUE)
    assert snapshot(target.root) == before


def test_newer_pack_over_all_families_at_once(target: Target) -> None:
    """Planned without any of the old patches, so the shared runtime is made anew."""
    before = snapshot(target.root)
    families = ("alpha", "beta")
    for family in families:
        apply(target, family)
    plan = name(target, "models/shared/runtime/plan.py")
    newer = Change(plan, None, b"def plan():\n    return 2\n")
    again = Change(plan, newer.after, newer.after)
    patches = [
        ledger.Patch(
            TECHNIQUE, "alpha", "2.0", (Change(name(target, "models/alpha.py"), ALPHA.encode(), b"A = 2\n"), newer)
        ),
        ledger.Patch(
            TECHNIQUE, "beta", "2.0", (Change(name(target, "models/beta.py"), BETA.encode(), b"B = 2\n"), again)
        ),
    ]
    assert len(ledger.commit_all(target, patches)) == 2
    assert (target.root / plan).read_bytes() == newer.after
    assert not (target.package / "models/shared/runtime/__init__.py").exists()
    assert [(row.state, row.pack_version) for row in ledger.status(target)] == [("applied", "2.0")] * 2
    ledger.revert(target, TECHNIQUE, "alpha")
    assert (target.root / plan).read_bytes() == newer.after
    ledger.revert(target, TECHNIQUE, "beta")
    assert snapshot(target.root) == before


def test_only_what_was_asked_for(target: Target) -> None:
    assert ledger.revert(target, TECHNIQUE) == []
    assert not target.state_dir.exists()
    apply(target, "alpha")
    assert ledger.revert(target, "another") == []
    assert ledger.without(target, TECHNIQUE, "beta") == {}
    assert [row.family for row in ledger.revert(target, TECHNIQUE, "alpha")] == ["alpha"]


def test_all_of_the_named_or_none(target: Target) -> None:
    for family in ("alpha", "beta"):
        apply(target, family)
    path = target.package / "models/beta.py"
    path.write_bytes(path.read_bytes().replace(b"self.shard(", b"self.mine("))
    with refused("conflict", 5, target.root):
        ledger.revert(target, TECHNIQUE, "alpha", "beta")
    assert [row.family for row in ledger.status(target)] == ["alpha", "beta"]


def test_planned_on_patched_text(target: Target) -> None:
    """Where a family is applied, a plan is made on the text without it."""
    apply(target, "alpha")
    patched = (target.package / "models/alpha.py").read_bytes()
    with refused("stale-plan", 3, target.root):
        apply(target, "alpha", [Change(name(target, "models/alpha.py"), patched, patched + b"# 2\n")])


def test_patch_returns_to_itself(target: Target) -> None:
    changes = patch(target, "alpha")
    for _ in range(2):
        apply(target, "alpha", changes)
        ledger.revert(target, TECHNIQUE)
    assert not (target.root / ".skillgen").exists()
