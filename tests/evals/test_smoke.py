"""A few cases of each technique's eval pass on a patched release, and one of them fails on a fault."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from skillgen.engine import registry
from tests import forking

COMMON = {"backend": "gloo", "baseline": None, "mutate": None, "nproc": 2, "timeout": 240}


@pytest.mark.parametrize("technique", registry.names())
def test_the_eval_passes_and_sees_a_fault(technique: str, tmp_path: Path) -> None:
    smoke = importlib.import_module(f"tests.{technique.replace('-', '_')}.smoke")
    spec = {**COMMON, "technique": technique, **smoke.spec(tmp_path)}
    script = getattr(smoke, "SCRIPT", forking.SCRIPT)
    good, bad = forking.forked(tmp_path, [spec, spec | {"mutate": smoke.FAULT}], script=script)
    statuses = {name: said if isinstance(said, str) else said[0] for name, said in good.items()}
    assert statuses[smoke.CASE] == "passed" and set(statuses.values()) <= {"passed", "skipped"}, statuses
    assert bad[smoke.CASE] == "failed" or bad[smoke.CASE][0] == "failed", bad
