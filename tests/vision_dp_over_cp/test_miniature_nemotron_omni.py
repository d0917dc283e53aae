"""A family without released code: the patch of its miniature runs, and shards what the unpatched code replicates."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from skillgen.cli.parser import main
from skillgen.evals.kernel import tolerances
from skillgen.evals.kernel.arms import apart
from tests.distributed import run_ranks

HERE = Path(__file__).parent / "miniatures" / "nemotron_omni"
T = "vision-dp-over-cp"
MODELING = "megatron/bridge/models/nemotron_omni/modeling_nemotron_omni.py"
MCORE_MODULE = "megatron.core.models.multimodal.context_parallel"
MCORE = "split_to_context_parallel_ranks_dynamic_res"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    models = tmp_path / "tree/megatron/bridge/models"
    shutil.copytree(HERE, models / "nemotron_omni", ignore=shutil.ignore_patterns("__pycache__"))
    (models / "logit_dtype.py").write_text("def logit_dtype_kwarg():\n    return {}\n")
    (models.parent / "package_info.py").write_text('MAJOR = 0\nMINOR = 7\nPATCH = 0\nPRE_RELEASE = "rc0"\n')
    return tmp_path / "tree"


def content(tree: Path) -> dict[str, bytes]:
    files = (path for path in tree.rglob("*") if path.is_file() and ".skillgen" not in path.parts)
    return {str(path.relative_to(tree)): path.read_bytes() for path in files}


def batch(frames: list[int], size: tuple[int, int]) -> dict[str, torch.Tensor]:
    """Images (1) and videos of 2x2-pixel patches, all of one size but the first, which is twice as high."""
    height, width = size
    sizes = [(2 * height if item == 0 else height, width) for item, count in enumerate(frames) for _ in range(count)]
    patches = sum(h * w // 4 for h, w in sizes)
    pixels = torch.randn(1, patches, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return {"images": pixels, "imgs_sizes": torch.tensor(sizes), "num_frames": torch.tensor(frames)}


def both_arms(rank: int, tree: Path, tubelet: int, inputs: dict[str, torch.Tensor]) -> tuple[Any, Any]:
    """(features, gradients summed over the ranks) of the replicated and the sharded arm."""
    sys.path.insert(0, str(tree))
    from megatron.bridge.models.nemotron_omni.nemotron_omni_provider import NemotronOmniModelProvider

    cp, arms = dist.group.WORLD, []
    for flag in (False, True):
        torch.manual_seed(0)
        provider = NemotronOmniModelProvider(cp.size(), tubelet, vision_dp_over_cp=flag)  # type: ignore[call-arg]
        model = provider.provide(SimpleNamespace(cp=cp)).double()
        assert model.vision_dp_over_cp is flag
        seen: list[int] = []
        model.vision_model.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0].shape[1]))
        rows = model(**inputs)
        (rows.sin() * (1 + rank)).sum().backward()
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
        for grad in grads:
            dist.all_reduce(grad)
        arms.append((rows.tolist(), [grad.tolist() for grad in grads], seen[0]))
    return arms[0], arms[1]


CASES: dict[str, tuple[int, list[int], tuple[int, int]]] = {
    "images": (1, [1, 1, 1], (4, 8)),
    "one image": (1, [1], (4, 4)),
    "odd tail": (2, [3], (4, 4)),
    "images and videos": (2, [1, 5, 1, 2], (4, 8)),
}


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("tubelet, frames, size", CASES.values(), ids=CASES)
def test_the_patched_miniature_shards(
    tree: Path, tubelet: int, frames: list[int], size: tuple[int, int], ranks: int
) -> None:
    assert main(["apply", T, str(tree), "--family", "nemotron_omni"]) == 0
    inputs = batch(frames, size)
    for replicated, sharded in run_ranks(ranks, both_arms, tree, tubelet, inputs):
        assert replicated[2] == inputs["images"].shape[1]
        if len(frames) > 1:
            assert sharded[2] < replicated[2]
        for ours, theirs in ((sharded[:1], replicated[:1]), (sharded[1], replicated[1])):
            pair = ([torch.tensor(rows, dtype=torch.float64) for rows in arm] for arm in (ours, theirs))
            assert apart(*pair) <= tolerances.of(torch.float64)


def test_a_wrong_group_is_named_as_published(tree: Path) -> None:
    assert main(["apply", T, str(tree), "--family", "nemotron_omni"]) == 0

    def on_rank(rank: int) -> str:
        sys.path.insert(0, str(tree))
        from megatron.bridge.models.nemotron_omni.nemotron_omni_provider import NemotronOmniModelProvider

        model = NemotronOmniModelProvider(4, vision_dp_over_cp=True).provide(  # type: ignore[call-arg]
            SimpleNamespace(cp=dist.group.WORLD)
        )
        with pytest.raises(ValueError) as caught:
            model(**batch([1, 1], (4, 4)))
        return str(caught.value)

    expected = "Nemotron Omni vision_dp_over_cp does not match its process group: config=4, group=2"
    assert run_ranks(2, on_rank) == [expected] * 2


def test_flag_is_on_by_default_and_off_without_context_parallelism(tree: Path) -> None:
    assert main(["apply", T, str(tree), "--family", "nemotron_omni"]) == 0

    def on_rank(rank: int) -> tuple[bool, bool]:
        sys.path.insert(0, str(tree))
        from megatron.bridge.models.nemotron_omni.nemotron_omni_provider import NemotronOmniModelProvider

        return tuple(NemotronOmniModelProvider(size).provide().vision_dp_over_cp for size in (1, 2))  # type: ignore

    assert run_ranks(1, on_rank) == [(False, True)]


@pytest.mark.parametrize("splitter", ["balanced", "mcore"])
def test_a_double_that_skips_the_constructor_still_runs(tree: Path, splitter: str) -> None:
    """The target's own tests have such doubles; the flag is then off."""
    assert main(["apply", T, str(tree), "--family", "nemotron_omni", "--splitter", splitter]) == 0

    def on_rank(rank: int) -> list[list[float]]:
        sys.path.insert(0, str(tree))
        helpers = dict.fromkeys((MCORE, "gather_from_context_parallel_ranks_dynamic_res"))
        for module in ("megatron.core", "megatron.core.models", "megatron.core.models.multimodal", MCORE_MODULE):
            sys.modules[module] = SimpleNamespace(**helpers)  # type: ignore[assignment]
        from megatron.bridge.models.nemotron_omni.modeling_nemotron_omni import NemotronOmniModel

        class Double(NemotronOmniModel):  # type: ignore[misc]
            def __init__(self) -> None:
                torch.nn.Module.__init__(self)
                self.context_parallel_lm, self.pg_collection = 1, SimpleNamespace(cp=dist.group.WORLD)

            def _encode_images(self, images: Any, *metadata: Any) -> Any:
                return images

        return Double()(torch.ones(2, 1)).tolist()

    assert run_ranks(1, on_rank) == [[[1.0], [1.0]]]


def test_splitter_of_an_earlier_apply_stays(tree: Path) -> None:
    before = content(tree)
    apply: Callable[..., int] = lambda *more: main(["apply", T, str(tree), "--family", "nemotron_omni", *more])  # noqa: E731
    assert apply("--splitter", "mcore") == 0
    mcore = content(tree)
    assert MCORE in (tree / MODELING).read_text()
    assert not (tree / "megatron/bridge/models/common/vision_sharding").exists()
    assert apply() == 0
    assert content(tree) == mcore
    assert apply("--splitter", "balanced") == 0
    assert MCORE not in (tree / MODELING).read_text()
    assert main(["revert", T, str(tree)]) == 0
    assert content(tree) == before
