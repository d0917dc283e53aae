"""Shard one encoder call over a context-parallel group: plan, split, encode and project locally, gather."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .agree import agree, check_group, is_trainable, plan_digest
from .forms import PLACEHOLDER_ROWS, Units
from .gather import Layout, gather_rows, row_layout
from .plan import Segment, make_plan


_log_once = cache(logging.getLogger(__name__).info)


def is_enabled(flag: bool, cp_size: int) -> bool:
    """Whether to shard: the flag is set, CP is on, and VISION_DP_OVER_CP=0 is not in the environment."""
    off = "VISION_DP_OVER_CP=0 is set in the environment" if os.environ.get("VISION_DP_OVER_CP") == "0" else ""
    off = off or ("context_parallel_size is 1, so no ranks share images" if cp_size <= 1 else "")
    if flag and off:
        _log_once(f"vision_dp_over_cp is off: {off}")
    return flag and not off


def shard_over_cp(
    encode: Callable[..., Any],
    form: Any,
    *,
    group: dist.ProcessGroup,
    cp_size: int,
    modules: Sequence[nn.Module],
    alpha: int,
    language_model: nn.Module | None = None,
    name: str = "",
    agreement: str = "strict",
    method: str = "balanced",
    what: str = "vision_dp_over_cp",
    min_rows: int = 0,
    min_units: int = 0,
    min_patches: int = 0,
    same_sequence: bool = False,
    replicas: int = 1,
) -> Callable[..., Any]:
    """Wrap an encoder call so that every image is encoded on one rank of the group instead of on all of them.

    Args:
        encode: encodes and projects to rows [rows, width] or [units, rows, width], a tuple or list of rows per item,
            `(rows, [deepstack levels])`, or an object with `pooler_output` and perhaps `deepstack_features`.
        form: how `encode` takes its images: `GridRows`, or another with `pixels`, `units` and `take`.
        group: the ranks that hold shards of the same sequences, `cp_size` of them; all make the same calls.
        modules: the modules whose parameters `encode` uses; backward takes part if any is trainable.
        alpha: linear work per patch in units of attention work, see `cost_alpha`.
        language_model: where it has `pg_collection.cp`, the group must have the same members.
        agreement: "strict" exchanges 16 bytes before the payload, so that a failing rank makes every rank raise;
            "off" saves that exchange, and peers of a failing rank wait until the collective times out.
        method: "balanced", "contiguous" or "count", see `make_plan`.
        min_rows, min_units: a batch with fewer feature rows and fewer units is encoded on every rank.
        min_patches: a rank that owns a unit encodes at least so many patches, zeros among them.
        same_sequence: ranks of one sequence shard are among them, over which no gradient must be summed.
        replicas: each so many ranks in a row hold the same gradient of the features, of which one is summed.
        name, what: how messages open.

    The result has the signature and the output container of `encode`. It raises ValueError before any collective where
    the group does not fit, and VisionShardingError on every rank where one failed or the ranks see different batches.
    """
    if agreement not in ("strict", "off"):
        raise ValueError(f"agreement must be 'strict' or 'off', got {agreement!r}")
    signature = inspect.signature(encode.forward if isinstance(encode, nn.Module) else encode)

    def sharded(*args: Any, **kwargs: Any) -> Any:
        check_group(group, cp_size, language_model, f"{name} {what}".strip())
        call = signature.bind(*args, **kwargs)
        pixels = call.arguments[form.pixels]
        trainable = is_trainable(modules, pixels)
        if trainable and same_sequence:
            raise ValueError(f"{what}: ranks of one sequence shard share the images, so the encoder must be frozen")
        layout, features = Layout([], [], []), []
        try:
            units = form.units(call.arguments)
            few = is_few(units, min_rows, min_units)
            if not few:
                plan = make_plan(units.runs, cp_size, alpha=alpha, method=method)
                layout = row_layout(plan, units.rows)
                share = plan.shares[group.rank()]
                fill = placeholders(units, share, min_patches)
                call.arguments.update(form.take(call.arguments, share, fill))
                output = encode(*call.args, **call.kwargs)
                features = own_rows(feature_levels(output), layout.rank_rows[group.rank()], len(fill) * units.blank[1])
        except Exception as error:  # told to the other ranks, then raised on all
            if agreement == "strict":
                agree(0, error, "", group, pixels.device, what)
            raise
        if agreement == "strict":
            levels = [(level.shape[1], level.dtype) for level in features]
            digest = plan_digest(units, layout, trainable, replicas, levels)
            summary = "{} units, {} rows, features {}".format(*units.totals(), levels)
            agree(digest, None, summary, group, pixels.device, what)
        if few:
            _log_once(f"{what}: a batch without images, without their sizes, or a small one is encoded on every rank")
            return encode(*args, **kwargs)
        gathered = gather_rows(features, layout, group, trainable=trainable, replicas=replicas)
        return like_output(output, iter(gathered), [run.count * rows for run, rows in zip(units.runs, units.rows)])

    return sharded


def is_few(units: Units, min_rows: int, min_units: int) -> bool:
    """Whether a batch is not worth a collective: decided from the whole batch, so alike on every rank."""
    count, rows = units.totals()
    return not count or (count < min_units and rows < min_rows)


def placeholders(units: Units, share: Sequence[Segment], min_patches: int = 0) -> list[str]:
    """Kinds to append to a share, for every kind in the batch, at least two rows, and `min_patches` beside a unit."""
    # Overlapped gradient reduction asserts that every parameter has a gradient; a placeholder's is exactly zero.
    fill = sorted(set(units.kinds) - {units.kinds[segment.run] for segment in share})
    if share:
        rows = sum(units.rows[segment.run] * segment.count for segment in share)
        patches = sum(units.runs[segment.run].patches * segment.count for segment in share)
        missing = -(-(min_patches - patches) // units.blank[0]) - len(fill)
        fill += [units.kinds[share[0].run]] * max(missing, not fill and rows < PLACEHOLDER_ROWS)
    return fill


def own_rows(levels: list[Tensor], rows: int, fill: int) -> list[Tensor]:
    """Drop the `fill` rows of placeholders, which come last."""
    for level in levels:
        if level.shape[0] != rows + fill:
            raise ValueError(f"the encoder returned {level.shape[0]} rows where the plan has {rows + fill}")
    return [level[:rows] for level in levels]


def feature_levels(output: Any) -> list[Tensor]:
    """The main features, then the deepstack levels, of an encoder's output, each [rows, width]."""
    if hasattr(output, "pooler_output"):
        output = output.pooler_output, getattr(output, "deepstack_features", None) or ()
    if isinstance(output, Tensor):
        return [output.flatten(0, -2)]
    if isinstance(output, (tuple, list)) and len(output) == 2 and isinstance(output[1], (tuple, list)):
        return [level for part in (output[0], *output[1]) for level in feature_levels(part)]
    if isinstance(output, (tuple, list)) and all(isinstance(item, Tensor) for item in output):
        return [torch.cat(tuple(output))]
    raise TypeError(f"cannot gather an encoder output of type {type(output).__name__}")


def like_output(output: Any, levels: Iterator[Tensor], item_rows: list[int]) -> Any:
    """The gathered levels in the container that the encoder returned; per-item containers are cut by item again."""
    if hasattr(output, "pooler_output"):
        gathered = type(output)(**dict.fromkeys(getattr(output, "__dataclass_fields__", ())))
        # HF sets pooler_output on output classes that have no such field
        gathered.pooler_output = like_output(output.pooler_output, levels, item_rows)
        if (deep := getattr(output, "deepstack_features", None)) is not None:
            gathered.deepstack_features = type(deep)(like_output(level, levels, item_rows) for level in deep)
        return gathered
    if isinstance(output, Tensor):
        return next(levels).view(-1, *output.shape[1:])
    if len(output) == 2 and isinstance(output[1], (tuple, list)):
        return type(output)((next(levels), type(output[1])(next(levels) for _ in output[1])))
    return type(output)(next(levels).split(item_rows))
