"""Shard an encoder call over a process group: plan, split, encode and project locally, gather."""

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from .agree import agree, check_group, is_trainable, plan_digest
from .forms import PLACEHOLDER_ROWS, Units
from .gather import Layout, gather_rows, row_layout
from .plan import Plan, Segment, make_plan


log_once = cache(logging.getLogger(__name__).info)


def is_enabled(flag: bool, cp_size: int) -> bool:
    """Whether to shard: the flag is set, and ranks share the images; says once where they do not."""
    if flag and cp_size <= 1:
        log_once("vision_dp_over_cp is off: context_parallel_size is 1, so no ranks share images")
    return flag and cp_size > 1


@dataclass(frozen=True, kw_only=True)
class ShardedEncoder:
    """An encoder, called as it was, each of whose units is encoded on one rank of a group instead of on all of them.

    Args:
        encode: Encodes and projects to rows [rows, width] or [units, rows, width], a tuple or list of rows per item,
            `(rows, [deepstack levels])`, or an object with `pooler_output` and perhaps `deepstack_features`.
        form: How `encode` takes its images; it has `pixels`, `units` and `take`.
        group: The `cp_size` ranks that hold shards of the same sequences; all make the same calls.
        modules: The modules whose parameters `encode` uses; backward takes part if any is trainable.
        alpha: Linear work per patch in units of attention work, see `cost_alpha`.
        language_model: Where it has `pg_collection.cp`, that group must have the same members.
        name: How messages open.

    Raises:
        ValueError: When called, before any collective, if the group does not fit.
        VisionShardingError: When called, on every rank, if one failed or they see different batches.
    """

    encode: Callable[..., Any]
    form: Any
    group: Any
    cp_size: int
    modules: Sequence[nn.Module]
    alpha: int
    language_model: nn.Module | None
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        check_group(self.group, self.cp_size, self.language_model, self.name)
        function = self.encode.forward if isinstance(self.encode, nn.Module) else self.encode
        call, rank = inspect.signature(function).bind(*args, **kwargs).arguments, self.group.rank()
        pixels = call[self.form.pixels]
        trainable = is_trainable(self.modules, pixels)
        layout, features = Layout([], [], []), []
        try:
            units = self.form.units(call)
            item_rows = [run.count * rows for run, rows in zip(units.runs, units.rows)]
            if plan := self.plan(units):
                layout = row_layout(plan, units.rows)
                placeholders = self.placeholders(units, plan.shares[rank])
                local_args, local_kwargs = list(args), dict(kwargs)  # hooks see them by position or name, as given
                for name, value in self.form.take(call, plan.shares[rank], placeholders).items():
                    given: Any = local_kwargs if name in kwargs else local_args
                    given[name if name in kwargs else [*call].index(name)] = value
                output = self.encode(*local_args, **local_kwargs)
                surplus = len(placeholders) * units.placeholder_rows
                features = own_rows(feature_levels(output), layout.rank_rows[rank], surplus)
        except Exception as error:  # told to the other ranks, then raised on all
            agree(0, error, "", self.group, pixels.device, self.name)
            raise
        levels = [(level.shape[1], level.dtype) for level in features]
        summary = f"{sum(run.count for run in units.runs)} units, {sum(item_rows)} rows, features {levels}"
        digest = plan_digest(self.name, units, layout, trainable, levels)
        agree(digest, None, summary, self.group, pixels.device, self.name)
        if plan is None:
            log_once(f"{self.name}: a batch without images, without their sizes, or a small one stays replicated")
            return self.encode(*args, **kwargs)
        return like_output(output, iter(self.gather(features, layout, trainable)), item_rows)

    def plan(self, units: Units) -> Plan | None:
        """None for a batch that every rank encodes, decided from all of it, so alike on every rank."""
        return make_plan(units.runs, self.cp_size, alpha=self.alpha) if units.runs else None

    def placeholders(self, units: Units, share: Sequence[Segment]) -> list[str]:
        """Kinds to append to a share: those of the batch that it lacks, or one more to a single row."""
        # Overlapped gradient reduction asserts that every parameter has a gradient; a placeholder's is exactly zero.
        missing = sorted(set(units.kinds) - {units.kinds[segment.run] for segment in share})
        rows = sum(units.rows[segment.run] * segment.count for segment in share)
        return missing or [units.kinds[share[0].run]] * (rows < PLACEHOLDER_ROWS)

    def gather(self, features: list[Tensor], layout: Layout, trainable: bool) -> list[Tensor]:
        """The features of all ranks in the order of the batch."""
        return gather_rows(features, layout, self.group, trainable=trainable)


def own_rows(levels: list[Tensor], rows: int, surplus: int) -> list[Tensor]:
    """Drop the rows of placeholders, which come last."""
    for level in levels:
        if level.shape[0] != rows + surplus:
            raise ValueError(f"the encoder returned {level.shape[0]} rows where the plan has {rows + surplus}")
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
        gathered.pooler_output = like_output(output.pooler_output, levels, item_rows)  # no field of all such classes
        if (deep := getattr(output, "deepstack_features", None)) is not None:
            gathered.deepstack_features = type(deep)(like_output(level, levels, item_rows) for level in deep)
        return gathered
    if isinstance(output, Tensor):
        return next(levels).view(-1, *output.shape[1:])
    if len(output) == 2 and isinstance(output[1], (tuple, list)):
        return type(output)((next(levels), type(output[1])(next(levels) for _ in output[1])))
    return type(output)(next(levels).split(item_rows))
