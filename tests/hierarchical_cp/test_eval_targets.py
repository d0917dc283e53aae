"""The eval on patched releases: it passes on both paths and with both consumers, and fails on every fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from tests import releases
from tests.forking import forked

pytestmark = pytest.mark.evals

TECHNIQUE = "hierarchical-cp"
FORKED = Path(__file__).with_name("forked_eval.py")
FAULTS = {
    "groups-swapped": (["groups"], "groups: CP 4 [2,2], decentralized"),
    "global-unset": (["cost"], "cost: CP 4 [2,2], decentralized"),
    "hcp-unread": (["probe"], "probe: CP 4 [2,2], decentralized"),
    "validation-dropped": (["checks"], "checks: refused: three sizes"),
    "no-reorder": (["numerics"], "numerics: CP 4 [2,2], decentralized"),
}
Rows = dict[str, list[str]]


def patched(name: str, folder: Path, *options: str) -> Path:
    return releases.patched(name, folder, TECHNIQUE, "--no-lint", *options)


def spec(target: Path, mcore: Path, kinds: list[str], **changes: Any) -> dict[str, Any]:
    base = {"technique": TECHNIQUE, "target": str(target), "mcore": str(mcore), "kinds": kinds, "backend": "gloo"}
    base |= {"families": ["groups", "checks", "recipe"], "mutate": None, "baseline": None, "limit": 20}
    return base | {"nproc": 4, "timeout": 120} | changes


def statuses(rows: Rows) -> set[str]:
    return {status for status, _ in rows.values()}


@pytest.fixture(scope="module")
def runs(mcore: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """A Bridge that is patched to manage alone: everything on 4 ranks, the groups on 8, and each fault."""
    folder = tmp_path_factory.mktemp("bridge")
    tree = patched("bridge-0.6.2", folder)
    specs = {"4": spec(tree, mcore, []), "8": spec(tree, mcore, ["groups"], nproc=8)}
    specs |= {name: spec(tree, mcore, kinds, mutate=name) for name, (kinds, _) in FAULTS.items()}
    return dict(zip(specs, forked(folder, list(specs.values()), script=FORKED), strict=True))


def test_everything_passes_on_four_ranks(runs: dict[str, Rows]) -> None:
    assert statuses(runs["4"]) == {"passed"}
    kinds = {name.partition(":")[0] for name in runs["4"]}
    assert kinds == {"groups", "wiring", "checks", "recipe", "numerics", "probe", "cost"}


def test_groups_on_eight_ranks(runs: dict[str, Rows]) -> None:
    assert statuses(runs["8"]) == {"passed"}
    for layout in ("CP 4 [2,2], TP 2", "CP 4 [2,2], PP 2", "CP 4 [2,2], DP 2", "CP 8 [4,2]", "CP 8 [2,4]"):
        assert {f"groups: {layout}, MPU", f"groups: {layout}, decentralized"} <= runs["8"].keys()
    assert "groups: CP 4 [2,2], offset 4, decentralized" in runs["8"]


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_caught(runs: dict[str, Rows], name: str) -> None:
    status, reason = runs[name][FAULTS[name][1]]
    assert status == "failed", runs[name]
    assert reason


def test_the_probe_says_that_it_is_off(runs: dict[str, Rows]) -> None:
    assert "CP is off" in runs["hcp-unread"][FAULTS["hcp-unread"][1]][1]


def test_a_bridge_that_relies_on_megatron_core(mcore: Path, tmp_path: Path) -> None:
    """With a core that reads the collection CP is on; with a released one the eval says that it is off."""
    bridge = patched("bridge-0.6.2", tmp_path, "--family", "groups", "--consumer", "core")
    core = patched("core-0.19.2", tmp_path)
    (read,) = forked(tmp_path, [spec(bridge, core, ["probe"], families=["groups"])], script=FORKED)
    assert statuses(read) == {"passed"}
    (unread,) = forked(tmp_path, [spec(bridge, mcore, ["probe"], families=["groups"])], script=FORKED)
    assert "CP is off" in unread["probe: CP 4 [2,2], decentralized"][1]
    assert unread["probe: CP 4 [2,2], MPU"][0] == "passed"


def test_megatron_core_alone(tmp_path: Path) -> None:
    core = patched("core-0.19.2", tmp_path)
    (rows,) = forked(tmp_path, [spec(core, core, ["wiring", "cost"], families=["attention"])], script=FORKED)
    assert statuses(rows) == {"passed"}


def test_an_unpatched_bridge_can_be_probed(
    mcore: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command asks for the probe alone, whatever is patched; on 0.6.2 one path is on and the other refuses."""
    bridge, asked = releases.original("bridge-0.6.2"), {}

    def run_suite(technique: str, target: Path, families: list[str], **options: Any) -> dict[str, Any]:
        asked.update(options)
        (rows,) = forked(tmp_path, [spec(target, mcore, options["kinds"], families=families)], script=FORKED)
        said = [
            {"kind": "probe", "name": n.removeprefix("probe: "), "status": s, "reason": r}
            for n, (s, r) in rows.items()
        ]
        return {"rows": said, "gains": [], "verdict": "PASS", "ok": not any(s == "failed" for s, _ in rows.values())}

    monkeypatch.setattr("skillgen.launch.suite.run_suite", run_suite)
    assert main(["eval", TECHNIQUE, str(bridge), "--probe", "--nproc", "4", "--mcore", str(mcore), "--json"]) == 0
    assert asked["kinds"] == ["probe"]
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["CP 4 [2,2], MPU"]["status"] == "passed"
    assert rows["CP 4 [2,2], decentralized"]["status"] == "skipped"
    assert "refuses" in rows["CP 4 [2,2], decentralized"]["reason"]


def test_the_probe_is_told_in_words() -> None:
    from skillgen.evals.hierarchical_cp.suite import probed

    numbers = {"CP": ["inner only"] * 4, "computed by": ["Transformer Engine"] * 4}
    rows = [
        {"kind": "probe", "name": "MPU", "status": "failed", "reason": "far", "numbers": numbers},
        {"kind": "probe", "name": "decentralized", "status": "skipped", "reason": "the target refuses this"},
        {"kind": "probe", "name": "control: off", "status": "passed", "reason": ""},
    ]
    said = ["MPU: CP is inner only, computed by Transformer Engine", "decentralized: the target refuses this"]
    assert probed(rows) == said


def test_only_this_technique_has_a_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "vision-dp-over-cp", str(releases.original("bridge-0.6.2")), "--probe", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no-probe"
