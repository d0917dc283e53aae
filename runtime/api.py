"""Shard one encoder call over a context-parallel group: plan, split, encode and project locally, gather."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .agree import agree, check_group, is_trainable, plan_digest
from .forms import PLACEHOLDER_ROWS, GridRows, ImageBatch, Units
from .gather import Layout, gather_rows, row_layout
from .plan import Segment, make_plan


logger = logging.getLogger(__name__)


def is_enabled(flag: bool, cp_size: int) -> bool:
    """Whether to shard: the flag is set, CP is on, and VISION_DP_OVER_CP=0 is not in the environment."""
    off = "VISION_DP_OVER_CP=0 is set in the environment" if os.environ.get("VISION_DP_OVER_CP") == "0" else ""
    off = off or ("context_parallel_size is 1, so no ranks share images" if cp_size <= 1 else "")
    if flag and off:
        _log_once(f"vision_dp_over_cp is off: {off}")
    return flag and not off


@cache
def _log_once(message: str) -> None:
    logger.info(message)


def shard_over_cp(
    encode: Callable[..., Any],
    form: GridRows | ImageBatch,
    *,
    group: dist.ProcessGroup,
    cp_size: int,
    modules: Sequence[nn.Module],
    alpha: int,
    language_model: nn.Module | None = None,
    name: str = "",
    agreement: str = "strict",
    method: str = "balanced",
) -> Callable[..., Any]:
    """Wrap an encoder call so that every image is encoded on one rank of the group instead of on all of them.

    Args:
        encode: encodes and projects; returns feature rows [rows, hidden], a tuple or list of such tensors per item,
            `(rows, list of deepstack levels)`, or an output object that has one of these as `pooler_output`.
        form: how `encode` takes its images.
        group: the ranks that hold shards of the same sequences; all of them make the same calls.
        cp_size: the configured `context_parallel_size`, checked against the group.
        modules: the modules whose parameters `encode` uses; backward takes part if any is trainable.
        alpha: linear work per patch in units of attention work, see `cost_alpha`.
        language_model: where it has `pg_collection.cp`, the group must have the same members.
        name: the model's name in messages.
        agreement: "strict" exchanges 16 bytes before the payload, so that a failing rank makes every rank raise;
            "off" saves that exchange, and peers of a failing rank wait until the collective times out.
        method: "balanced", "contiguous" or "count", see `make_plan`.

    The result has the signature and the output container of `encode`. It raises ValueError before any collective where
    the group does not fit, and VisionShardingError on every rank where one failed or the ranks see different batches.
    """
    if agreement not in ("strict", "off"):
        raise ValueError(f"agreement must be 'strict' or 'off', got {agreement!r}")
    signature = inspect.signature(encode)

    def sharded(*args: Any, **kwargs: Any) -> Any:
        check_group(group, cp_size, language_model=language_model, name=name)
        call = signature.bind(*args, **kwargs)
        pixels = call.arguments[form.pixels]
        trainable = is_trainable(modules, pixels)
        units, layout, features, failure = Units((), (), ()), Layout([], [], []), [], None
        try:
            units = form.units(call.arguments)
            plan = make_plan(units.runs, cp_size, alpha=alpha, method=method)
            layout = row_layout(plan, units.rows)
            if units.runs:
                share = plan.shares[group.rank()]
                fill = placeholders(units, share)
                call.arguments.update(form.take(call.arguments, share, fill))
                output = encode(*call.args, **call.kwargs)
                rows = layout.rank_rows[group.rank()]
                features = own_rows(feature_levels(output), rows, len(fill) * PLACEHOLDER_ROWS)
        except Exception as error:  # told to the other ranks, then raised on all
            if agreement == "off":
                raise
            failure = error
        if agreement == "strict":
            levels = [(level.shape[1], level.dtype) for level in features]
            digest = plan_digest(units, layout, trainable, levels)
            summary = f"{sum(run.count for run in units.runs)} units, {sum(units.rows)} rows, features {levels}"
            agree(digest, failure, summary, group, pixels.device)
        if not units.runs:
            _log_once("vision_dp_over_cp: a batch without images, or without their sizes, is encoded on every rank")
            return encode(*args, **kwargs)
        gathered = gather_rows(features, layout, group, trainable=trainable)
        return like_output(output, gathered, [run.count * rows for run, rows in zip(units.runs, units.rows)])

    return sharded


def placeholders(units: Units, share: Sequence[Segment]) -> list[str]:
    """Kinds to append to a share so that it exercises every kind in the batch and has at least two rows.

    Parameters of a part that a rank skips would have no gradient, which overlapped gradient reduction answers with an
    assertion; from a placeholder their gradient is exactly zero.
    """
    missing = sorted(set(units.kinds) - {units.kinds[segment.run] for segment in share})
    rows = sum(units.rows[segment.run] * segment.count for segment in share)
    return [units.kinds[share[0].run]] if not missing and rows < PLACEHOLDER_ROWS else missing


def own_rows(levels: list[Tensor], rows: int, fill: int) -> list[Tensor]:
    """Drop the `fill` rows of placeholders, which come last."""
    for level in levels:
        if level.shape[0] != rows + fill:
            raise ValueError(f"the encoder returned {level.shape[0]} rows where the plan has {rows + fill}")
    return [level[:rows] for level in levels]


def feature_levels(output: Any) -> list[Tensor]:
    """The main features, then the deepstack levels, of an encoder's output, each [rows, width]."""
    output = getattr(output, "pooler_output", output)
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, (tuple, list)) and len(output) == 2 and isinstance(output[1], (tuple, list)):
        return [output[0], *output[1]]
    if isinstance(output, (tuple, list)) and all(isinstance(item, Tensor) for item in output):
        return [torch.cat(tuple(output))]
    raise TypeError(f"cannot gather an encoder output of type {type(output).__name__}")


def like_output(output: Any, levels: list[Tensor], item_rows: list[int]) -> Any:
    """The gathered levels in the container that the encoder returned; per-item containers are cut by item again."""
    if hasattr(output, "pooler_output"):
        gathered = type(output)()  # HF sets pooler_output on output classes that have no such field
        gathered.pooler_output = like_output(output.pooler_output, levels, item_rows)
        return gathered
    if isinstance(output, Tensor):
        return levels[0]
    if len(output) == 2 and isinstance(output[1], (tuple, list)):
        return type(output)((levels[0], type(output[1])(levels[1:])))
    return type(output)(levels[0].split(item_rows))
