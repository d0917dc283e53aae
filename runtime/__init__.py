"""Vision-encoder sharding over context-parallel ranks: every image is encoded once per group, not once per rank."""

from .agree import VisionShardingError
from .api import is_enabled, shard_over_cp
from .forms import GridRows
from .images import ImageBatch, PackedPatches
from .plan import cost_alpha, make_plan
from .tensors import PaddedPatches, TensorBatch


__version__ = "0.1.0"

__all__ = ["GridRows", "VisionShardingError", "cost_alpha", "is_enabled", "make_plan", "shard_over_cp"]
__all__ += ["ImageBatch", "PackedPatches"]
__all__ += ["PaddedPatches", "TensorBatch"]
