"""Shard one encoder call over a context-parallel group: plan, split, encode and project locally, gather."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .agree import agree, check_group, is_trainable, plan_digest
from .forms import PLACEHOLDER_ROWS, Form, Units
from .gather import gather_rows, row_layout
from .plan import Segment, make_plan


logger = logging.getLogger(__name__)


def is_enabled(flag: bool, cp_size: int) -> bool:
    """Whether to shard: the flag is set, CP is on, and VISION_DP_OVER_CP=0 is not in the environment."""
    if flag and os.environ.get("VISION_DP_OVER_CP") == "0":
        _log_once("vision_dp_over_cp is off: VISION_DP_OVER_CP=0 is set in the environment")
        return False
    if flag and cp_size <= 1:
        _log_once("vision_dp_over_cp is off: context_parallel_size is 1, so there are no ranks to share images with")
        return False
    return flag


@lru_cache(maxsize=None)
def _log_once(message: str) -> None:
    logger.info(message)


def shard_over_cp(
    encode: Callable[..., Any],
    form: Form,
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

    Returns:
        A callable with the signature and the output container of `encode`.

    Raises:
        ValueError: from the call, before any collective: the group does not fit, or `agreement` is unknown.
        VisionShardingError: from the call, on every rank: a rank's encoder failed, or ranks see different batches.
    """
    if agreement not in ("strict", "off"):
        raise ValueError(f"agreement must be 'strict' or 'off', got {agreement!r}")
    signature = inspect.signature(encode)

    def sharded(*args: Any, **kwargs: Any) -> Any:
        check_group(group, cp_size, language_model=language_model, name=name)
        call = signature.bind(*args, **kwargs)
        pixels = call.arguments[form.pixels]
        trainable = is_trainable(tuple(modules), pixels)
        units, features, failure = Units((), (), ()), [], None
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
                features = own_rows(feature_levels(output), rows, len(fill) * units.blank_rows)
        except Exception as error:  # told to the other ranks, then raised on all
            if agreement == "off":
                raise
            failure = error
        if agreement == "strict":
            levels = [(level.shape[1], level.dtype) for level in features]
            digest = plan_digest(units, method, alpha, trainable, levels)
            summary = f"{sum(run.count for run in units.runs)} units, {sum(units.rows)} rows, features {levels}"
            agree(digest, failure, summary, group, pixels.device)
        if not units.runs:
            return encode(*args, **kwargs)
        gathered = gather_rows(features, layout, group, trainable=trainable)
        return like_output(output, gathered, [run.count * rows for run, rows in zip(units.runs, units.rows)])

    return sharded


def placeholders(units: Units, share: Sequence[Segment]) -> list[str]:
    """Kinds to append to a share so that it exercises every kind in the batch and has at least two rows.

    A rank that skipped a part of the encoder would leave its parameters without gradient, which overlapped gradient
    reduction answers with an assertion; their gradient from a placeholder is exactly zero.
    """
    owned = {units.kinds[segment.run] for segment in share}
    missing = sorted(set(units.kinds) - owned)
    if not missing and sum(units.rows[segment.run] * segment.count for segment in share) < PLACEHOLDER_ROWS:
        return [units.kinds[share[0].run]]
    return missing


def own_rows(levels: list[Tensor], rows: int, fill: int) -> list[Tensor]:
    """Drop the `fill` rows of placeholders, which come last."""
    for level in levels:
        if level.shape[0] != rows + fill:
            raise ValueError(
                f"the encoder returned {level.shape[0]} rows for a share that has {rows + fill} by the plan"
            )
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
