"""The eval on a patched release: it passes, and sees every fault."""

from __future__ import annotations

from typing import Any

import pytest

from tests.forking import forked
from tests.releases import small

pytestmark = pytest.mark.evals
CASE = "qwen3_5_moe parity: CP 2, 4 query heads on 2"
FAULTS = dict.fromkeys(("told-nothing", "other-order", "first-copy-learns"), CASE)


@pytest.fixture(scope="module")
def statuses(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, dict[str, str]]:
    """The eval's rows on a patched release: as it is, and under each fault."""
    work = tmp_path_factory.mktemp("eval")
    common: dict[str, Any] = {"technique": "blockdiag-gqa", "target": str(small(work)), "mcore": None}
    common |= {"families": ["qwen3_5_moe"], "kinds": [], "backend": "gloo", "baseline": None, "limit": 20, "nproc": 2}
    specs = [common | {"mutate": name, "timeout": 120} for name in (None, *FAULTS)]
    return dict(zip((None, *FAULTS), forked(work, specs), strict=True))


def test_the_eval_passes_on_the_patched_release(statuses: dict[str | None, dict[str, str]]) -> None:
    assert set(statuses[None].values()) == {"passed"}
    assert CASE in statuses[None] and "qwen3_5_moe crash: CP 2, 4 query heads on 2, not told" in statuses[None]


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_caught(statuses: dict[str | None, dict[str, str]], name: str) -> None:
    assert statuses[name][CASE] == "failed"
