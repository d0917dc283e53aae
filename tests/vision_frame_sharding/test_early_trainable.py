"""With --trainable, gradients pass the sequence sharding of NeMo Automodel 0.5.0; without it, its limits remain."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vision_frame_sharding.patching import done, released

pytestmark = pytest.mark.evals

CHECKS = (
    "shards equal the buffers, 2 ranks",
    "shards equal the buffers, 4 ranks",
    "frozen embeddings take the old way",
    "FSDP units train",
    "teacher reads its own embeddings",
)
# what upstream says or does where the patch was made without the option
LIMITS = (
    "cannot resize variables that require grad",
    "cannot resize variables that require grad",
    "ok",
    "'NoneType' object has no attribute 'full_tensor'",
    "Tensor-likes are not close",
)


def checked(folder: Path, *options: str) -> dict[str, str]:
    tree = released("0.5.0", folder)
    done("apply", tree, *options, families=["qwen3_5_moe"])
    script = Path(__file__).with_name("trained.py")
    words = [sys.executable, str(script), str(tree)]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert answer.returncode == 0, answer.stderr[-3000:]
    outcomes: dict[str, str] = json.loads(answer.stdout.splitlines()[-1])
    assert outcomes.keys() == set(CHECKS)
    return outcomes


@pytest.fixture(scope="module")
def trainable(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return checked(tmp_path_factory.mktemp("trainable"), "--trainable")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return checked(tmp_path_factory.mktemp("frozen"))


@pytest.mark.parametrize("check", CHECKS)
def test_trainable(trainable: dict[str, str], check: str) -> None:
    assert trainable[check] == "ok"


@pytest.mark.parametrize(("check", "limit"), list(zip(CHECKS, LIMITS, strict=True)), ids=CHECKS)
def test_without_the_option_the_checks_notice(frozen: dict[str, str], check: str, limit: str) -> None:
    assert limit in frozen[check]
