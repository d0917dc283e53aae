"""What a vision tower costs per rank with TP x DP degrees of its own; arithmetic on sizes, without torch.

Sources of the formulas: the parameters and matrix products of Qwen3-VL's vision model in Megatron-Bridge; the
collectives of megatron-core's column- and row-parallel linear layers without sequence parallelism; what autograd
keeps, counted layer by layer and checked against measurements (`tests/vision_tp_dp/test_advise.py`, and the suite's
kind `cost`).

Letters: P patches, H width, F width of the MLP, M merged width (merge^2 x H), O output width.
"""

from __future__ import annotations

import importlib
import sys
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skillgen.kernel.resources import package_folder

if TYPE_CHECKING:
    from skillgen.runtime.plan import Run

DTYPES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}
GRADIENT = 4  # bytes: megatron-core accumulates gradients in fp32
OPTIMIZER = 12  # bytes: Adam's fp32 master weight and two moments
FP32 = 4
PLANNING = "_skillgen_planning"

Share = list[tuple[int, int]]  # (patches of a unit, number of such units)


@dataclass(frozen=True)
class Tower:
    """Sizes of a vision tower. `deepstack` levels have a merger each, beside the last one; the MLP is not gated."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    out_hidden: int
    deepstack: int = 0
    patch_size: int = 16
    merge_size: int = 2
    temporal_patch_size: int = 2
    channels: int = 3
    positions: int = 2304

    @property
    def window(self) -> int:
        """Patches that become one row of features."""
        return self.merge_size**2

    @property
    def merged(self) -> int:
        """Width of a merger."""
        return self.window * self.hidden

    @property
    def pixels(self) -> int:
        """Values of one patch."""
        return self.channels * self.temporal_patch_size * self.patch_size**2

    def splits(self, vision_tp: int) -> list[str]:
        """What `vision_tp` does not divide."""
        sizes = {"heads": self.heads, "intermediate": self.intermediate, "merged width": self.merged}
        return [f"{name} {size}" for name, size in sizes.items() if size % vision_tp]


# The defaults of Qwen3VLVisionConfig and Qwen3_5VisionConfig in transformers; sizes of a checkpoint may differ.
TOWERS = {
    "qwen3-vl": Tower(hidden=1152, layers=27, intermediate=4304, heads=16, out_hidden=3584, deepstack=3),
    "qwen3.5": Tower(hidden=1152, layers=27, intermediate=4304, heads=16, out_hidden=3584),
}


@dataclass(frozen=True)
class Job:
    """What one microbatch brings, and on which ranks."""

    text_tp: int
    cp: int
    images: tuple[tuple[int, int, int], ...]  # (height, width, count), in pixels
    dp: int = 1  # data-parallel replicas; the distributed optimizer splits its state over DP x CP
    microbatches: int = 1  # of one step, over which the sum over replicas is spread
    dtype: str = "bf16"
    recompute: bool = False  # "full", one layer at a time
    block_patches: int | None = None

    @property
    def world(self) -> int:
        """Ranks that share a microbatch."""
        return self.text_tp * self.cp


@dataclass(frozen=True)
class Machine:
    """Rates that a rank reaches. Bandwidth is what a rank sends per second, as NVLink inside a node does.

    Defaults: 40 % of the 989 TFLOP/s of an H100 in bf16, and 360 of its 450 GB/s per direction.
    """

    flops: float = 400e12
    bandwidth: float = 360e9


@dataclass(frozen=True)
class Cost:
    """Of one rank and one microbatch: of the busiest rank in time, of the fullest in memory."""

    vision_tp: int
    vision_dp: int
    patches: int  # most of any rank, free space of blocks included
    filled: float | None  # fraction of the blocks that is not free space
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    forward_bytes: int  # that a rank sends: all-reduces inside the tower, gather
    backward_bytes: int  # all-reduces inside the tower, exchange of feature gradients
    step_bytes: int  # sum of gradients over replicas, once a step
    gathered_bytes: int  # size of what the gather brings together; 0 without it
    flops: int  # forward and backward
    compute_seconds: float
    exchange_seconds: float  # forward and backward
    step_seconds: float  # a microbatch's part of the sum over replicas

    @property
    def memory_bytes(self) -> int:
        """All that the tower keeps on a rank."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes + self.activation_bytes

    @property
    def seconds(self) -> float:
        """Time of a microbatch: computing, then exchanging, nothing overlapped."""
        return self.compute_seconds + self.exchange_seconds + self.step_seconds


def planning(module: str) -> Any:
    """A module of the runtime, e.g. `plan`, without the package's initializer, which imports torch."""
    for package in ("", ".tp_dp"):
        if PLANNING + package not in sys.modules:
            bare = types.ModuleType(PLANNING + package)
            bare.__path__ = [str(package_folder("skillgen.runtime").joinpath(package.strip(".")))]
            sys.modules[PLANNING + package] = bare
    return importlib.import_module(f"{PLANNING}.{module}")


def image_patches(tower: Tower, height: int, width: int) -> int:
    """Patches of an image whose sides are rounded to whole merge windows, as Qwen's image processors do."""
    factor = tower.patch_size * tower.merge_size
    return tower.window * max(round(height / factor), 1) * max(round(width / factor), 1)


def parameters(tower: Tower, vision_tp: int) -> int:
    """Parameters on a rank: biases of row-parallel layers, norms and embeddings are not split."""
    h, f, m, o, t = tower.hidden, tower.intermediate, tower.merged, tower.out_hidden, vision_tp
    layer = (3 * h * h + 3 * h + h * h + h * f + f + f * h) // t + 6 * h
    mergers = (1 + tower.deepstack) * ((m * m + m + m * o) // t + o)
    norms = 2 * h + tower.deepstack * 2 * m
    return tower.pixels * h + h + tower.positions * h + tower.layers * layer + mergers + norms


def activations(tower: Tower, job: Job, patches: int, vision_tp: int) -> int:
    """Bytes that autograd keeps for `patches`, with attention that keeps no scores: flash, Transformer Engine's.

    Per layer and patch: inputs and outputs of both norms with their statistics; sines and cosines for Q and K; split
    over TP the fused QKV (its V is a view of it), rotated Q and K, attention's output and log-sum-exp, the MLP before
    and after GELU. With `recompute` each layer keeps its input; the last merger or one layer is there in full.
    """
    e, h, t = DTYPES[job.dtype], tower.hidden, vision_tp
    head, s = h // tower.heads, max(FP32, e)  # s: statistics, sines and cosines
    split = e * (6 * h + 2 * tower.intermediate) + s * tower.heads
    layer = patches * (e * 4 * h + 4 * s + 4 * s * head + split // t)
    level = patches * (e * h + 2 * e * h // t) + 2 * s * patches // tower.window
    last = patches * (e * 2 * h + 2 * s + 2 * e * h // t)
    start = patches * (e * tower.pixels + 4 * (8 + e))  # pixels; four position indices and their weights
    if not job.recompute:
        return start + tower.layers * layer + tower.deepstack * level + last
    inputs = patches * ((tower.layers - 1) * e * h + FP32 * head)
    again = layer + min(tower.deepstack, 1) * (level + patches * e * h)
    return start + inputs + max(last + patches * e * h, again)


def ring(ranks: int, size: int) -> int:
    """Bytes that a rank sends in a ring all-reduce of `size` bytes: reduce-scatter, then all-gather."""
    return 2 * (ranks - 1) * size // ranks


def shares(tower: Tower, job: Job, vision_dp: int) -> tuple[list[Share], float | None]:
    """What each rank of a column encodes, as the patched runtime deals it, and the filled fraction of its blocks."""
    plan = planning("plan")
    runs: list[Run] = [plan.Run(image_patches(tower, h, w), count) for h, w, count in job.images]
    if job.block_patches is None or vision_dp == 1:
        alpha = plan.cost_alpha(tower.hidden, tower.intermediate)
        dealt = plan.make_plan(runs, vision_dp, alpha=alpha).shares
        return [[(runs[run].patches, count) for run, _, count in share] for share in dealt], None
    if job.block_patches % tower.window:
        told = f"must be a multiple of the {tower.window} patches of a feature row"
        raise ValueError(f"vision_block_patches {told}, got {job.block_patches}")
    packer = planning("tp_dp.packing")
    packed = packer.pack_blocks(runs, job.block_patches, vision_dp)
    blocks = [[(runs[run].patches, count) for run, _, count in block] for block in packed]
    filled = sum(size * count for block in blocks for size, count in block) / (job.block_patches * len(blocks) or 1)
    for block, segments in zip(blocks, packed, strict=True):
        block += [(patches, 1) for patches in packer.free_space(runs, segments, job.block_patches)]
    each = len(blocks) // vision_dp
    mine = (blocks[each * rank :][:each] for rank in range(vision_dp))
    return [[unit for block in share for unit in block] for share in mine], filled


def flops(tower: Tower, job: Job, share: Share, vision_tp: int) -> int:
    """Forward and backward of a share: two per multiply-add; backward twice the forward, pixels need no gradient."""
    h, m = tower.hidden, tower.merged
    patches = sum(size * count for size, count in share)
    # QKV 3HH, output HH, MLP 2HF per patch, scores and values 2PH per patch: 4H * (2H + F + P) with two per product.
    layers = tower.layers * sum(4 * h * size * (2 * h + tower.intermediate + size) * count for size, count in share)
    merger = 2 * patches // tower.window * m * (m + tower.out_hidden)
    start = 2 * patches * tower.pixels * h
    again = layers + tower.deepstack * merger if job.recompute else 0
    return (3 * (layers + (1 + tower.deepstack) * merger) + again) // vision_tp + 2 * start


def tower_bytes(tower: Tower, job: Job, patches: int, vision_tp: int) -> tuple[int, int]:
    """Sizes of the all-reduced tensors inside the tower, forward and backward; none without vision TP.

    Forward: attention's and the MLP's output [P, H] of each layer, each merger's output [P / merge^2, O]. Backward:
    the inputs of QKV and MLP [P, H], each merger's input [P / merge^2, M], and with `recompute` the layers again.
    """
    if vision_tp == 1:
        return 0, 0
    e, h, rows = DTYPES[job.dtype], tower.hidden, patches // tower.window
    layers, level = 2 * tower.layers * patches * h, rows * tower.out_hidden
    again = layers + tower.deepstack * level if job.recompute else 0
    backward = layers + (1 + tower.deepstack) * rows * tower.merged + again
    return e * (layers + (1 + tower.deepstack) * level), e * backward


def features_bytes(tower: Tower, patches: int, dtype: str) -> int:
    """Size of the features of `patches`, deepstack levels included."""
    return DTYPES[dtype] * patches // tower.window * tower.out_hidden * (1 + tower.deepstack)


def cost(tower: Tower, job: Job, vision_tp: int, machine: Machine | None = None, *, shared: bool = True) -> Cost:
    """One mode: vision TP x the DP that is left. With `shared` off: as released, every image on every TP group."""
    machine, dp = machine or Machine(), job.world // vision_tp if shared else 1
    replicas = job.text_tp // vision_tp
    dealt, filled = shares(tower, job, dp)
    sizes = [sum(size * count for size, count in share) for share in dealt]
    features = features_bytes(tower, sum(sizes), job.dtype) if dp > 1 else 0
    gather, exchange = (dp - 1) * features // dp, (dp // replicas - 1) * features // dp
    weights = parameters(tower, vision_tp)
    step = ring(replicas, GRADIENT * weights)
    busiest = (0.0, 0.0, 0, 0, 0)
    for share, patches in zip(dealt, sizes, strict=True):
        sent = tower_bytes(tower, job, patches, vision_tp)
        forward, backward = ring(vision_tp, sent[0]) + gather, ring(vision_tp, sent[1]) + exchange
        work = flops(tower, job, share, vision_tp)
        rank = (work / machine.flops, (forward + backward) / machine.bandwidth, forward, backward, work)
        busiest = max(busiest, rank, key=lambda found: found[0] + found[1])
    e = DTYPES[job.dtype]
    state = OPTIMIZER - (FP32 if e == FP32 else 0)  # an fp32 weight is its own master
    return Cost(
        vision_tp=vision_tp,
        vision_dp=dp,
        patches=max(sizes),
        filled=filled,
        weight_bytes=e * weights,
        gradient_bytes=GRADIENT * weights,
        optimizer_bytes=state * weights // (job.dp * job.cp),
        activation_bytes=activations(tower, job, max(sizes), vision_tp),
        forward_bytes=busiest[2],
        backward_bytes=busiest[3],
        step_bytes=step,
        gathered_bytes=features,
        flops=busiest[4],
        compute_seconds=busiest[0],
        exchange_seconds=busiest[1],
        step_seconds=step / job.microbatches / machine.bandwidth,
    )
