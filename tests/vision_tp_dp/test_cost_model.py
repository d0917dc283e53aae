"""The cost model against a tower in plain torch: parameters, kept bytes, products; and its own laws."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from skillgen.evals.kernel.measure import saved_activations
from skillgen.runtime.plan import Run, cost_alpha, make_plan
from skillgen.runtime.tp_dp import pack_blocks
from skillgen.runtime.tp_dp.packing import free_space
from skillgen.techniques.vision_tp_dp import advice, cost_model
from skillgen.techniques.vision_tp_dp.cost_model import Job, Tower, cost
from tests.vision_tp_dp.plain_tower import PlainTower

TINY = Tower(hidden=32, layers=3, intermediate=80, heads=4, out_hidden=24, deepstack=2, patch_size=4, positions=50)
ONE = Job(text_tp=4, cp=1, images=((32, 64, 1),), dtype="fp32")


def plain(job: Job, tp: int) -> tuple[PlainTower, torch.Tensor, list[int]]:
    images = [cost_model.image_patches(TINY, h, w) for h, w, count in job.images for _ in range(count)]
    return PlainTower(TINY, tp, scores=len(images) > 1), torch.rand(sum(images), TINY.pixels), images


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_parameters_are_those_of_the_tower(tp: int) -> None:
    tower = PlainTower(TINY, tp, scores=False)
    assert cost_model.parameters(TINY, tp) == sum(parameter.numel() for parameter in tower.parameters())


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_kept_bytes_are_what_autograd_keeps(tp: int, dtype: str) -> None:
    job = replace(ONE, dtype=dtype)
    tower, pixels, images = plain(job, tp)
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    with saved_activations(tower.to(kind)) as saved:
        kept = tower(pixels.to(kind), images)
        measured = saved()
    del kept
    expected = cost_model.activations(TINY, job, len(pixels), tp)
    if dtype == "bf16":  # on CPUs the norms keep their statistics in bf16
        expected -= 2 * len(pixels) * (2 * (2 * TINY.layers + 1)) + 4 * TINY.deepstack * len(pixels) // TINY.window
    assert measured == expected


@pytest.mark.parametrize("tp", [1, 2])
def test_recompute_keeps_the_inputs_of_layers_and_one_layer_in_full(tp: int) -> None:
    _, pixels, images = plain(ONE, tp)
    tower = PlainTower(TINY, tp, scores=False, recompute=True)
    with saved_activations(tower) as saved:
        kept = [*tower(pixels, images)]
        after_forward = saved()
    merger, hidden = PlainTower(TINY, tp, scores=False).last, torch.rand(len(pixels), TINY.hidden, requires_grad=True)
    with saved_activations(merger) as saved:
        kept.append(merger(hidden))
        last = saved()
    chunk = PlainTower(TINY, tp, scores=False)
    with saved_activations(chunk) as saved:
        kept += chunk.chunk(0, hidden, torch.rand(len(pixels), 1, TINY.hidden // TINY.heads), images)
        full = saved() - 4 * hidden.numel()  # its input is kept already
    del kept
    expected = cost_model.activations(TINY, replace(ONE, recompute=True), len(pixels), tp)
    assert full > last and expected == after_forward - last + full


def test_recompute_repeats_the_all_reduces_of_the_layers() -> None:
    (forward, off), (same, on) = (
        cost_model.tower_bytes(TINY, replace(ONE, recompute=value), 64, 2) for value in (False, True)
    )
    assert forward == same and on - off == forward - 4 * 16 * 24  # fp32; the last merger is not repeated


def test_the_optimizer_is_split_over_dp_and_cp() -> None:
    job = Job(text_tp=2, cp=2, images=((64, 64, 1),), dp=8)
    mode = cost(TINY, job, 2)
    assert mode.optimizer_bytes == 12 * cost_model.parameters(TINY, 2) // 16
    assert mode.gradient_bytes == 2 * mode.weight_bytes == 4 * cost_model.parameters(TINY, 2)
    assert cost(TINY, replace(job, dtype="fp32"), 2).optimizer_bytes == 8 * cost_model.parameters(TINY, 2) // 16


@pytest.mark.parametrize("tp", [1, 2])
def test_flops_are_those_of_a_counted_step(tp: int) -> None:
    job = replace(ONE, images=((32, 64, 1), (16, 24, 2)))
    tower, pixels, images = plain(job, tp)
    counter = FlopCounterMode(display=False)
    with counter:
        sum(level.sum() for level in tower(pixels, images)).backward()
    assert cost_model.flops(TINY, job, [(size, 1) for size in images], tp) == counter.get_total_flops()


def test_the_planner_is_the_runtimes_own() -> None:
    job = Job(text_tp=4, cp=2, images=((64, 64, 3), (32, 96, 2), (160, 128, 1)))
    runs = [Run(cost_model.image_patches(TINY, h, w), count) for h, w, count in job.images]
    plan = make_plan(runs, 8, alpha=cost_alpha(TINY.hidden, TINY.intermediate))
    dealt = [[(runs[segment.run].patches, segment.count) for segment in share] for share in plan.shares]
    assert cost_model.shares(TINY, job, 8) == (dealt, None)


def test_blocks_are_dealt_as_the_runtime_deals_them() -> None:
    job = Job(text_tp=2, cp=1, images=((64, 64, 3), (32, 96, 2), (32, 32, 5)), block_patches=320)
    runs = [Run(cost_model.image_patches(TINY, h, w), count) for h, w, count in job.images]
    packed = pack_blocks(runs, 320, 2)
    half = len(packed) // 2
    dealt, filled = cost_model.shares(TINY, job, 2)
    assert half > 1 and filled == sum(run.patches * run.count for run in runs) / (320 * len(packed))
    for share, blocks in zip(dealt, (packed[:half], packed[half:]), strict=True):
        units = []
        for block in blocks:
            units += [(runs[segment.run].patches, segment.count) for segment in block]
            units += [(free, 1) for free in free_space(runs, block, 320)]
        assert share == units
        assert sum(size * count for size, count in share) == half * 320


def test_it_needs_no_torch() -> None:
    package = "skillgen.techniques.vision_tp_dp"
    code = f"import sys; from {package} import advice; from {package}.cost_model import *\n"
    code += "advice.recommend(TOWERS['qwen3-vl'], Job(2, 2, ((64, 64, 3),))); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("tp", "cp", "gather", "exchange", "replicas"),
    [(1, 2, 3 / 4, 1 / 4, 2), (2, 2, 1 / 2, 1 / 2, 1), (1, 1, 1 / 2, 0, 2), (2, 1, 0, 0, 1)],
    ids=["1x4", "2x2", "1x2", "2x1"],
)
def test_exchanges_of_text_tp_2(tp: int, cp: int, gather: float, exchange: float, replicas: int) -> None:
    job = Job(text_tp=2, cp=cp, images=((64, 64, 4),), dtype="bf16")
    mode = cost(TINY, job, tp)
    features = 2 * (4 * 16 * 16 // 4) * 24 * 3  # bytes of four images' rows, two levels and the last
    patches = 1024 // mode.vision_dp
    forward = 2 * (6 * patches * 32 + 3 * patches // 4 * 24) if tp > 1 else 0  # three layers, three mergers
    backward = 2 * (6 * patches * 32 + 3 * patches // 4 * 128) if tp > 1 else 0
    assert mode.gathered_bytes == (features if mode.vision_dp > 1 else 0)
    assert mode.forward_bytes == forward + gather * features  # two ranks' ring sends what it reduces
    assert mode.backward_bytes == backward + exchange * features
    assert mode.step_bytes == (4 * cost_model.parameters(TINY, tp) if replicas == 2 else 0)
    assert cost(TINY, job, 2, shared=False).gathered_bytes == 0


@pytest.mark.parametrize("name", cost_model.TOWERS)
def test_a_named_tower_has_the_default_sizes_of_transformers(name: str) -> None:
    folder, of = {"qwen3-vl": ("qwen3_vl", "Qwen3VL"), "qwen3.5": ("qwen3_5", "Qwen3_5")}[name]
    place = importlib.util.find_spec("transformers")
    if place is None or place.origin is None:
        pytest.skip("transformers is not installed")
    source = Path(place.origin).with_name("models") / folder / f"configuration_{folder}.py"
    tree = ast.parse(source.read_text())
    (config,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == f"{of}VisionConfig")
    stated = {n.target.id: n.value for n in config.body if isinstance(n, ast.AnnAssign)}
    sizes = {
        name: ast.literal_eval(value) for name, value in stated.items() if isinstance(value, ast.Constant | ast.Tuple)
    }
    names = {"hidden": "hidden_size", "layers": "depth", "intermediate": "intermediate_size", "heads": "num_heads"}
    names |= {"out_hidden": "out_hidden_size", "merge_size": "spatial_merge_size", "channels": "in_channels"}
    names |= {"positions": "num_position_embeddings"}
    tower = asdict(cost_model.TOWERS[name])
    assert tower.pop("deepstack") == len(sizes.get("deepstack_visual_indexes", ()))
    assert tower == {key: sizes[names.get(key, key)] for key in tower}


jobs = st.builds(
    Job,
    text_tp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2, 3]),
    images=st.lists(
        st.tuples(st.integers(8, 900), st.integers(8, 900), st.integers(1, 9)), min_size=1, max_size=5
    ).map(tuple),
    dtype=st.sampled_from(["bf16", "fp32"]),
    recompute=st.booleans(),
)
towers = st.builds(
    Tower,
    hidden=st.sampled_from([256, 1152]),
    layers=st.integers(2, 40),
    intermediate=st.sampled_from([1024, 4304]),
    heads=st.just(16),
    out_hidden=st.just(2048),
    deepstack=st.integers(0, 2),
)


@settings(max_examples=25, deadline=None)
@given(towers, jobs)
def test_a_higher_vision_tp_holds_less_of_the_tower_and_sends_more_inside_it(tower: Tower, job: Job) -> None:
    modes = [cost(tower, job, tp) for tp in advice.degrees(tower, job.text_tp)]
    assert [mode.vision_tp * mode.vision_dp for mode in modes] == [job.world] * len(modes)
    for low, high in pairwise(modes):
        assert high.weight_bytes < low.weight_bytes and high.optimizer_bytes < low.optimizer_bytes
        assert high.step_bytes < low.step_bytes or low.step_bytes == high.step_bytes == 0
        assert high.patches >= low.patches
    assert modes[0].vision_tp == 1 and cost_model.tower_bytes(tower, job, modes[0].patches, 1) == (0, 0)
    assert modes[-1].step_bytes == 0 if modes[-1].vision_tp == job.text_tp else modes[-1].step_bytes > 0


@settings(max_examples=25, deadline=None)
@given(towers, jobs)
def test_no_rank_encodes_more_than_all_and_some_rank_the_mean(tower: Tower, job: Job) -> None:
    units = [(cost_model.image_patches(tower, h, w), count) for h, w, count in job.images]
    for tp in advice.degrees(tower, job.text_tp):
        mode = cost(tower, job, tp)
        dealt = cost_model.shares(tower, job, mode.vision_dp)[0]
        assert mode.patches == max(sum(size * count for size, count in share) for share in dealt)
        work, (everything,) = ([cost_model.flops(tower, job, share, tp) for share in of] for of in (dealt, [units]))
        assert everything <= sum(work) + tp * len(work) and mode.flops <= max(work) <= everything
        assert mode.seconds >= max(work) / cost_model.Machine().flops
        assert sum(size * count for share in dealt for size, count in share) == sum(s * c for s, c in units)
        assert mode.activation_bytes >= cost_model.activations(tower, job, max(units)[0], tp)


@settings(max_examples=25, deadline=None)
@given(towers, jobs)
def test_recompute_keeps_less_and_computes_more(tower: Tower, job: Job) -> None:
    off, on = (cost(tower, replace(job, recompute=value), 1) for value in (False, True))
    assert on.activation_bytes < off.activation_bytes and on.flops > off.flops and on.patches == off.patches


@settings(max_examples=25, deadline=None)
@given(towers, jobs, st.floats(1e6, 1e12), st.floats(1.0, 100.0))
def test_more_memory_is_never_slower(tower: Tower, job: Job, memory: float, times: float) -> None:
    tight, wide = (advice.recommend(tower, job, memory=limit) for limit in (memory, times * memory))
    assert all(mode.memory_bytes <= memory for mode in tight.fitting)
    assert all(mode.memory_bytes > memory for mode in tight.too_large)
    if tight.fitting:
        assert wide.fitting[0].seconds <= tight.fitting[0].seconds == min(mode.seconds for mode in tight.fitting)
