"""The evals on real releases: they pass on the patched code, and fail on every fault that is put into it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from skillgen.cli.parser import main
from skillgen.evals.kernel import tolerances
from tests.forking import forked

pytestmark = pytest.mark.evals

TECHNIQUE = "vision-dp-over-cp"
FAULTS: dict[str, tuple[str, list[str], str]] = {
    "no-reduce": ("ministral3", ["parity", "training"], "ministral3 training: CP 2, 20 steps of SGD"),
    "order": ("ministral3", ["parity"], "ministral3 parity: CP 2, 3 images"),
    "placeholder-leak": ("ministral3", ["parity"], "ministral3 parity: CP 2, a share of one row"),
    "cut-tubelet": ("qwen3_omni", ["parity"], "qwen3_omni parity: CP 2, video of 3 temporal patches"),
    "gather-before-projection": ("ministral3", ["cost"], "ministral3 cost: CP 2"),
    "swap": ("ministral3", ["parity"], "ministral3 parity: CP 2, 3 images"),
    "swap-gradient": ("ministral3", ["parity"], "ministral3 parity: CP 2, 3 images"),
    "count": ("ministral3", ["cost"], "ministral3 cost: CP 2"),
    "frozen-reduce": ("ministral3", ["parity"], "ministral3 parity: CP 2, frozen"),
    "local-backward": ("ministral3", ["parity"], "ministral3 parity: CP 2, frozen, 1 image, input gradient"),
    "upcast": ("ministral3", ["parity"], "ministral3 parity: CP 2, bf16"),
    "digest": ("ministral3", ["agreement"], "ministral3 agreement: CP 2, a rank has another order"),
    "never-off": ("ministral3", ["parity"], "ministral3 parity: flag set at CP 1: off"),
    "no-agree": ("ministral3", ["agreement"], "ministral3 agreement: CP 2, a rank's tower raises"),
}


def spec(target: Path, mcore: Path, family: str, kinds: list[str], **changes: Any) -> dict[str, Any]:
    base = {"technique": TECHNIQUE, "target": str(target), "mcore": str(mcore), "families": [family], "kinds": kinds}
    return (
        base | {"backend": "gloo", "mutate": None, "baseline": None, "limit": 3, "nproc": 2, "timeout": 120} | changes
    )


@pytest.fixture(scope="module")
def mutants(bridge: Path, mcore: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    specs = [spec(bridge, mcore, family, kinds, mutate=name) for name, (family, kinds, _) in FAULTS.items()]
    specs[-1]["timeout"] = 45  # without agreement a rank dies sooner or later
    specs += [spec(bridge, mcore, "ministral3", ["parity", "training"], rounding_by_rows=True)]
    return dict(zip([*FAULTS, "rounding"], forked(tmp_path_factory.mktemp("mutants"), specs), strict=True))


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_caught(mutants: dict[str, dict[str, str]], name: str) -> None:
    assert mutants[name][FAULTS[name][2]] == "failed"


def test_products_may_round_by_the_number_of_their_rows(mutants: dict[str, dict[str, str]]) -> None:
    """As they do on some processors: a rank's share has fewer rows than the batch."""
    rows = mutants["rounding"]
    assert {status for name, status in rows.items() if "strided" not in name} == {"passed"}, rows
    assert len(rows) >= 15


def test_four_ranks_cover_strided_groups_and_other_members(bridge: Path, mcore: Path, tmp_path: Path) -> None:
    (rows,) = forked(tmp_path, [spec(bridge, mcore, "ministral3", ["parity", "agreement"], nproc=4, limit=20)])
    assert rows["ministral3 parity: CP 2, strided groups"] == "passed"
    assert rows["ministral3 agreement: equal size, other members"] == "passed"
    assert rows["ministral3 parity: CP 4, 1 image"] == "passed"
    assert not {"failed", "died"} & set(rows.values())


def test_the_command_runs_the_suite(
    bridge: Path, mcore: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report"
    words = ["eval", TECHNIQUE, str(bridge), "--family", "ministral3", "--family", "minimax_m3", "--baseline", "count"]
    code = main([*words, "--mcore", str(mcore), "--report", str(report), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0, answer["error"]
    status = {(row["family"], row["kind"], row["name"]): row["status"] for row in answer["rows"]}
    assert {kind for family, kind, _ in status if family == "ministral3"} == {
        "parity",
        "agreement",
        "cost",
        "training",
    }
    assert status["minimax_m3", "control", "CP 2, forced, 2 images must fail"] == "passed"
    assert "failed" not in status.values()
    assert {path.name for path in report.iterdir()} == {"report.json", "report.md", "report.html"}


@pytest.mark.parametrize("splitter", ["balanced", "mcore"])
def test_the_canonical_nemotron_omni(bridge_main: Path, mcore: Path, tmp_path: Path, splitter: str) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(bridge_main, tree)
    assert main(["apply", TECHNIQUE, str(tree), "--family", "nemotron_omni", "--splitter", splitter]) == 0
    (rows,) = forked(tmp_path, [spec(tree, mcore, "nemotron_omni", ["parity", "agreement"], limit=20)])
    assert not {"failed", "died"} & set(rows.values())
    assert list(rows.values()).count("passed") >= 10
    if splitter == "mcore":
        assert rows["nemotron_omni parity: CP 2, mcore splitter, video of 3 frames (known to fail)"] == "passed"


def test_gradients_are_the_same_under_megatrons_own_ddp(bridge: Path, mcore: Path) -> None:
    """Also on an idle rank with overlapped reduction, which asserts that every parameter has had its gradient."""
    script = Path(__file__).with_name("megatron_ddp.py")
    done = subprocess.run([sys.executable, str(script), str(bridge), str(mcore)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    records = json.loads(done.stdout.splitlines()[-1])
    assert len(records) == 4
    assert not [record for record in records if not record.get("difference", 1) <= tolerances.of(torch.float32)], (
        records
    )
