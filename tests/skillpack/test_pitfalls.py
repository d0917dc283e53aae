"""Each published pitfall of vision DP over CP: its entry names a check that exists, and a test here that bites."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from skillgen.cli.parser import main
from skillgen.evals.kernel import rules
from skillgen.evals.kernel.measure import collectives
from skillgen.evals.kernel.mutations import gather_before_projection
from skillgen.evals.vision_dp_over_cp import cases_agreement, cases_cost, cases_parity, cases_training
from skillgen.evals.vision_dp_over_cp import suite as vision_dp_over_cp
from skillgen.kernel import resources
from skillgen.runtime import api, plan
from skillgen.runtime.grid_rows import GridRows
from skillgen.runtime.plan import Run
from skillgen.techniques.vision_dp_over_cp.defects import EXPLAINED
from tests.cli.trees import write
from tests.distributed import RankError, run_ranks
from tests.runtime.sharding import check_parity, grid, images, packed, shard
from tests.runtime.toys import HIDDEN, OUT, image_batch, language_model
from tests.vision_dp_over_cp.test_towers import FORWARD, QWEN, SUMMED, TOWER, UTILS

T = "vision-dp-over-cp"
PAGE = resources.path(f"skills/{T}/references/pitfalls.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^## (\d+\. .+)\n\n((?:[- ] .+\n)+)", PAGE, re.MULTILINE))
PARTS = ("Symptom", "Cause", "Cure", "Check", "Test")
SUITES = {
    "parity": cases_parity.cases,
    "agreement": cases_agreement.cases,
    "cost": cases_cost.cases,
    "training": cases_training.cases,
}
Patch = pytest.MonkeyPatch


def part(entry: str, name: str) -> str:
    (text,) = re.findall(rf"^- {name}: (.+(?:\n  .+)*)", entry, re.MULTILINE)
    return str(text)


def test_six_pitfalls_are_described() -> None:
    assert [title[0] for title in ENTRIES] == [*"123456"]
    assert all(part(entry, name) for entry in ENTRIES.values() for name in PARTS)
    assert PAGE.count("\n## ") == len(ENTRIES) + 1  # and the others


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_its_test_is_here_and_its_check_exists(entry: str) -> None:
    assert callable(globals()[part(entry, "Test").strip("`")])
    context: Any = SimpleNamespace(cp_sizes=lambda: [2, 4, 8])
    family: Any = SimpleNamespace(video=True, odd_grids=True)
    names = {kind: [case.name for case in cases(context, family)] for kind, cases in SUITES.items()}
    assert set(SUITES) <= set(vision_dp_over_cp.KINDS)
    kind = ""
    for check in part(entry, "Check").split("; "):
        where = re.match(r"`(\w+)`", check)
        if where and where[1] == "scan":
            assert set(re.findall(r"`([a-z-]+-[a-z-]+)`", check)) <= set(EXPLAINED)
        elif where and where[1] == "doctor":
            assert "`recipes FAMILY`" in check
        else:
            kind = next(word for word in re.findall(r"\w+", check) if word in SUITES)
            wanted = re.findall(r'"([^"]+)"', check)
            assert wanted and all(any(name in case for case in names[kind]) for name in wanted), (kind, wanted)


def told(target: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    assert main(["doctor", str(target), "--json"]) == 0
    return {row["check"]: row for row in json.loads(capsys.readouterr().out)["rows"]}


def test_a_flag_without_effect_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    recipe = "recipes/ministral3/h100/ministral3.py"
    text = "# context_parallel_size = 1\ncfg.model.context_parallel_size = {}  # or 1\n"
    write(tmp_path / "megatron/bridge", {recipe: text.format(1)})
    assert "recipes ministral3" not in told(tmp_path, capsys)  # not patched yet
    assert main(["apply", T, str(tmp_path), "--family", "ministral3"]) == 0
    row = told(tmp_path, capsys)["recipes ministral3"]
    assert (row["state"], row["found"]) == ("problem", "1 of 1 with CP 1")
    assert row["means"].endswith(f"megatron/bridge/{recipe}:2")
    (tmp_path / "megatron/bridge" / recipe).write_text(text.format(4))
    rows = told(tmp_path, capsys)
    assert rows["recipes ministral3"]["state"] == "ok"
    api.log_once.cache_clear()
    with caplog.at_level("INFO"):
        assert api.is_enabled(True, 4) and not api.is_enabled(True, 1)
    assert "vision_dp_over_cp is off: context_parallel_size is 1" in caplog.text


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_a_split_by_number_is_seen(cp: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cost case's batch and limit tell the methods apart, and scan finds a split by number in a target."""
    items = cases_cost.workload(SimpleNamespace(video=False), cp)  # type: ignore[arg-type]
    runs = tuple(Run(4 * item.rows * item.cols, 1) for item in items)
    total = sum(run.patches for run in runs)
    busiest = {}
    for method in ("balanced", "count"):
        shares = rules.planner(plan, method)(runs, cp, alpha=512).shares
        busiest[method] = max(sum(runs[s.run].patches * s.count for s in share) for share in shares) / total
    assert busiest["balanced"] <= 1.15 / cp < busiest["count"]

    for split, found in (("pick_cp_split(size, data)", True), ("data", False)):
        tree = tmp_path / str(found)
        files = {
            QWEN + "model.py": FORWARD.format(body=f"        data = {split}\n{TOWER}"),
            QWEN + "utils.py": UTILS.format(backward=SUMMED),
            "models/qwen_vl/qwen3_vl_provider.py": "class Qwen3VLModelProvider:\n    vision_dp_when_cp = False\n",
            "__init__.py": "",
        }
        for name, text in files.items():
            (tree / "megatron/bridge" / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / "megatron/bridge" / name).write_text(text)
        main(["scan", str(tree), "--technique", T, "--json"])
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert any("defect:split-by-count" in note for note in row["notes"]) == found


def healthy(result: Any) -> bool:
    """What the eval makes of a case."""
    return all(value <= limit for value, limit in result.checks.values())


def refused(rank: int) -> list[bool]:
    """Whether the eval's own judge is content: with a group of another size, and with one of other members."""
    context: Any = SimpleNamespace(limit=5)
    groups = {name: [dist.new_group(ranks) for ranks in members] for name, members in MEMBERS.items()}
    place = {name: [rank in ranks for ranks in members].index(True) for name, members in MEMBERS.items()}
    mine = {name: found[place[name]] for name, found in groups.items()}
    toy, form, batch = images((4, 4), (4, 4), (4, 8))()
    options = {"encode": toy.encode, "form": form, "group": mine["blocks"], "modules": [toy], "alpha": 16, "name": ""}
    larger = api.ShardedEncoder(cp_size=4, language_model=None, **options)
    other = api.ShardedEncoder(cp_size=2, language_model=language_model(mine["strided"]), **options)
    ranks = [str(dist.get_process_group_ranks(group)) for group in mine.values()]
    return [
        healthy(cases_agreement.must_raise(context, lambda: larger(**batch), ["config=4", "group=2"])),
        healthy(cases_agreement.must_raise(context, lambda: other(**batch), ranks)),
    ]


MEMBERS = {"blocks": ([0, 1], [2, 3]), "strided": ([0, 2], [1, 3])}


def test_another_group_is_refused(monkeypatch: Patch) -> None:
    assert run_ranks(4, refused, timeout=20) == [[True, True]] * 4
    monkeypatch.setattr(api, "check_group", lambda *args: None)
    assert run_ranks(4, refused, timeout=20) == [[False, False]] * 4


def bites(check: Callable[[], Any], patch: Callable[[], None]) -> None:
    check()
    patch()
    with pytest.raises(RankError):
        check()


def test_a_stand_in_is_legal_for_the_merge(monkeypatch: Patch) -> None:
    take = GridRows.take

    def one_by_one(form: GridRows, call: Any, share: Any, fill: Any) -> Any:
        """The stand-in is a single patch."""
        taken = take(form, call, share, [])
        pixels, local = taken[form.pixels], taken[form.grid].tolist() + [[1, 1, 1]] * len(fill)
        blank = pixels.new_zeros(len(fill), pixels.shape[1])
        return {**taken, form.pixels: torch.cat([pixels, blank]), form.grid: torch.tensor(local)}

    run_ranks(2, check_parity, packed((1, 3, 5), (1, 4, 4)))  # real images of odd sides
    bites(
        lambda: run_ranks(2, check_parity, grid((1, 4, 4)), timeout=10),
        lambda: monkeypatch.setattr(GridRows, "take", one_by_one),
    )


def traffic(rank: int, early: bool) -> tuple[bool, int]:
    """Whether forward's bytes are within the cost case's limit, and how many collectives there are."""
    toy, form, _ = images((4, 4))()
    batch = image_batch((32, 32), (16, 32))
    if early:
        family: Any = SimpleNamespace(projector=lambda model: model.projector)
        gather_before_projection(family, toy, SimpleNamespace(cp=dist.group.WORLD))  # type: ignore[arg-type]
    with collectives() as seen:
        rows = shard(toy, form)(**batch)
    assert HIDDEN > OUT  # projection makes the features narrower
    return seen.side(0) <= rows.numel() * rows.element_size() + cases_cost.SLACK, len(seen.calls)


def test_a_gather_before_the_projector_is_seen() -> None:
    assert run_ranks(2, traffic, False) == [(True, 2)] * 2
    assert run_ranks(2, traffic, True) == [(False, 4)] * 2


def test_one_image_on_eight_ranks(monkeypatch: Patch) -> None:
    """Forward and backward, where seven ranks own nothing and what they run must leave no trace."""
    bites(
        lambda: run_ranks(8, check_parity, images((4, 4), poison=True), timeout=30),
        lambda: monkeypatch.setattr(api, "own_rows", lambda levels, rows, surplus: levels),
    )
