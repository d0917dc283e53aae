"""A vision encoder's own degrees of tensor and data parallelism over the ranks that share one microbatch."""

from .blocks import GridBlocks
from .degrees import VisionParallelConfig, dp_columns, replica_groups, tp_groups
from .encode import shard_tower
from .groups import VisionGroups, make_groups
from .packing import pack_blocks
from .replicas import (
    broadcast_replicas,
    mark_replicas,
    offset_replica_ids,
    require_replica_sum,
    sum_replica_gradients,
    with_replica_sum,
)


__all__ = ["GridBlocks", "pack_blocks", "VisionGroups", "make_groups", "shard_tower"]
__all__ += ["VisionParallelConfig", "dp_columns", "replica_groups", "tp_groups"]
__all__ += ["broadcast_replicas", "mark_replicas", "offset_replica_ids"]
__all__ += ["require_replica_sum", "sum_replica_gradients", "with_replica_sum"]
