"""What a policy adds to sharding: batches and ranks with too little work, ranks of one sequence shard."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from .agree import is_trainable
from .api import ShardedEncoder
from .forms import Units
from .plan import Plan, Segment


@dataclass(frozen=True, kw_only=True)
class ThresholdShardedEncoder(ShardedEncoder):
    """A sharded encoder that leaves small batches alone.

    Args:
        min_rows: A batch with fewer feature rows, and fewer units than `min_units`, is encoded on every rank.
        min_units: See `min_rows`.
        min_patches: A rank that owns a unit encodes at least so many patches, zeros among them.
        same_sequence: Ranks of one sequence shard are in the group, over which no gradient must be summed.
    """

    min_rows: int = 0
    min_units: int = 0
    min_patches: int = 0
    same_sequence: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As without thresholds; ValueError, before any collective, if the encoder must be frozen and is not."""
        function = self.encode.forward if isinstance(self.encode, nn.Module) else self.encode
        pixels = inspect.signature(function).bind(*args, **kwargs).arguments[self.form.pixels]
        if self.same_sequence and is_trainable(self.modules, pixels):
            told = "ranks of one sequence shard share the images, so the encoder must be frozen"
            raise ValueError(f"{self.name}: {told}")
        return super().__call__(*args, **kwargs)

    def plan(self, units: Units) -> Plan | None:
        """None also for a batch below both thresholds."""
        return None if is_small(units, self.min_rows, self.min_units) else super().plan(units)

    def placeholders(self, units: Units, share: Sequence[Segment]) -> list[str]:
        """Also as many as `min_patches` needs beside a unit."""
        kinds = super().placeholders(units, share)
        if not share:
            return kinds
        patches = sum(units.runs[segment.run].patches * segment.count for segment in share)
        missing = -(-(self.min_patches - patches) // units.placeholder_patches) - len(kinds)
        return kinds + [units.kinds[share[0].run]] * missing


def is_small(units: Units, min_rows: int, min_units: int) -> bool:
    """Whether a batch is below both thresholds."""
    rows = sum(run.count * rows for run, rows in zip(units.runs, units.rows))
    return rows < min_rows and sum(run.count for run in units.runs) < min_units
