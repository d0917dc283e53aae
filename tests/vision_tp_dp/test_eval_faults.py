"""Every fault that is put into the patched code fails the case that is there for it; without a fault all pass."""

from __future__ import annotations

import pytest

from tests.vision_tp_dp.evaluated import patched, spec, statuses

pytestmark = pytest.mark.evals

WHERE = "TP 4 CP 1"
SP = f"{WHERE}, sequence parallel"
FAULTS = {
    "columns-rows": f"groups: 2x2 in {WHERE}",
    "sum-not-slice": f"parity: 2x2 in {SP}: a video and images",
    "no-replica-sum": f"parity: 2x2 in {SP}: a video and images",
    "unpack-before-gather": f"parity: 2x2 in {SP}, blocks of 32: 17 images",
    "no-broadcast": f"groups: 2x2 in {WHERE}: replicas start equal",
    "deepstack-partial": f"parity: 4x1 in {SP}: a video and images",
    "no-replica-ids": f"checkpoint: 2x2 in {WHERE}: every shard once",
    "norm-twice": f"checkpoint: 2x2 in {WHERE}: gradient norm",
    "nan-padding": f"parity: 2x2 in {SP}, blocks of 32: NaN in the padding",
    "no-agree": f"agreement: 1x4 in {WHERE}: the tower raises",
    "text-conversion": f"conversion: 2x2 in {WHERE}: there and back",
    "tp-default": "resolution: the table",
}
OTHERS = [
    f"parity: off in {SP}: vision gradients told",
    "parity: 1x2 in TP 2 CP 1 DP 2, sequence parallel: 1 image",
    "parity: 1x4 in TP 1 CP 4, recompute: 5 images",
    "cost: 1x4 in TP 2 CP 2",
    "training: 2x2 in TP 2 CP 2, sequence parallel, 4 steps of SGD",
]
SILENT = {"no-agree", "text-conversion"}  # peers of a rank that raised wait until the collective gives up


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("faults")
    tree = patched(folder)
    specs = {"": spec(tree, [*FAULTS.values(), *OTHERS])}
    for name, case in FAULTS.items():
        specs[name] = spec(tree, [case], mutate=name, **({"limit": 1} if name in SILENT else {}))
    return dict(zip(specs, statuses(folder, [*specs.values()]), strict=True))


def test_all_pass_without_a_fault(runs: dict[str, dict[str, str]]) -> None:
    assert runs[""] == dict.fromkeys([*FAULTS.values(), *OTHERS], "passed")


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_caught(runs: dict[str, dict[str, str]], name: str) -> None:
    assert runs[name] == {FAULTS[name]: "failed"}
