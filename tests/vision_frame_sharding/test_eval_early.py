"""The recipes of Automodel 0.5.0: their cases pass on patched code, and fail on every fault that is put into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forking import forked
from tests.vision_frame_sharding.patching import TECHNIQUE, done, released

pytestmark = pytest.mark.evals

FAMILIES = ("qwen3_5_moe", "step3p7", "nemotron_omni")
KINDS = ["recipe", "trainable"]
FAULTS = {
    "frame-order": "recipe: CP 2, images and a 4-frame video",
    "cut-entry": "recipe: CP 2, a 5-frame video",
    "sum-dropped": "trainable: CP 2, images",
    "threshold-per-rank": "recipe: CP 2, below both thresholds",
    "swap": "recipe: CP 2, images",
    "swap-gradient": "trainable: CP 2, images",
    "placeholder-leak": "recipe: CP 2, a least of work",
    "group-not-restored": "recipe: CP 2, the tower raises on one rank",
    "distillation-forgotten": "recipe: CP 2, distillation, validation",
    "embeddings-detached": "trainable: CP 2, one image",
}


def spec(
    tree: Path, families: tuple[str, ...], mutate: str | None = None, nproc: int = 2, **more: Any
) -> dict[str, Any]:
    options = {"technique": TECHNIQUE, "target": str(tree), "mcore": None, "families": list(families), "kinds": KINDS}
    options |= {"modules": ["recipes.vlm.finetune", "recipes.vlm.kd"]}
    return options | {
        "backend": "gloo",
        "mutate": mutate,
        "baseline": None,
        "limit": 10,
        "nproc": nproc,
        "timeout": 240,
        **more,
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The suite on a tree that was patched to train, on 2 and 4 ranks, and under each fault."""
    tree = released("0.5.0", tmp_path_factory.mktemp("trainable"))
    done("apply", tree, "--trainable", families=FAMILIES)
    specs = [
        spec(tree, FAMILIES),
        spec(tree, FAMILIES[:1], nproc=4),
        spec(tree, FAMILIES[::2], rounding_by_rows=True),
        *(spec(tree, FAMILIES[:1], name) for name in FAULTS),
    ]
    return dict(zip(["", "4 ranks", "rounding", *FAULTS], forked(tmp_path_factory.mktemp("runs"), specs), strict=True))


def test_the_patched_recipes_pass(runs: dict[str, dict[str, str]]) -> None:
    rows = runs[""]
    assert not {"failed", "died"} & set(rows.values()), rows
    assert {name.partition(" ")[0] for name in rows} == set(FAMILIES)
    skipped = {name for name, status in rows.items() if status == "skipped"}
    assert all("CP 2 x TP 2" in name for name in skipped)
    assert rows["qwen3_5_moe recipe: options from the configuration"] == "passed"
    assert rows["qwen3_5_moe trainable: CP 2, images and a 4-frame video"] == "passed"


def test_four_ranks_share_one_image_and_may_be_of_two_dimensions(runs: dict[str, dict[str, str]]) -> None:
    rows = runs["4 ranks"]
    assert set(rows.values()) == {"passed"}, rows
    for name in ("CP 4, one image", "CP 2 x TP 2, frozen"):
        assert rows[f"qwen3_5_moe recipe: {name}"] == "passed"
    for name in ("CP 4, one image", "CP 2 x TP 2 is refused"):
        assert rows[f"qwen3_5_moe trainable: {name}"] == "passed"


def test_products_may_round_by_the_number_of_their_rows(runs: dict[str, dict[str, str]]) -> None:
    """As they do on some processors: a rank's share has fewer rows than the batch."""
    assert not {"failed", "died"} & set(runs["rounding"].values()), runs["rounding"]
    assert {name.partition(" ")[0] for name in runs["rounding"]} == set(FAMILIES[::2])


def test_without_trainable_no_gradient_reaches_the_tower(tmp_path: Path) -> None:
    tree = released("0.5.0", tmp_path)
    done("apply", tree, families=FAMILIES)
    (rows,) = forked(tmp_path, [spec(tree, FAMILIES)])
    assert not {"failed", "died"} & set(rows.values()), rows
    for family, items in (("qwen3_5_moe", "a 5-frame video"), ("step3p7", "images and crops")):
        assert rows[f"{family} trainable: CP 2, {items}, without --trainable: no gradient"] == "passed"


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_caught(runs: dict[str, dict[str, str]], name: str) -> None:
    assert runs[name][f"qwen3_5_moe {FAULTS[name]}"] == "failed"
