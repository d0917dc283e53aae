"""Share out the images of one encoder call over the vision DP column, encoded on vision TP groups."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..api import ShardedEncoder, feature_levels, like_output
from ..gather import Layout
from ..grid_rows import GridRows
from .blocks import GridBlocks
from .gather import gather_replicated_rows
from .groups import VisionGroups


@dataclass(frozen=True, kw_only=True)
class TowerSharding(ShardedEncoder):
    """A sharded encoder of whose group each `replicas` ranks in a row hold equal gradients of the features."""

    replicas: int

    def gather(self, features: list[Tensor], layout: Layout, trainable: bool) -> list[Tensor]:
        """Backward sums one of the equal gradients."""
        return gather_replicated_rows(features, layout, self.group, self.replicas, trainable=trainable)


def shard_tower(
    encode: Callable[..., Any],
    *,
    groups: VisionGroups,
    merge_size: int,
    alpha: int,
    modules: Sequence[nn.Module],
    block_patches: int | None = None,
    pixels: str = "hidden_states",
    grid: str = "grid_thw",
) -> Callable[..., Any]:
    """Wrap an encoder call so that each vision TP group encodes its share of the images, or of blocks of them.

    Without a column there is nothing to share out, and the call stays as it is. Gradients of the gathered features
    are the same on the text TP ranks of the column, and are summed over its CP ranks only; parameter gradients then
    miss the images of the other replicas: see `sum_replica_gradients`. For the other options see `ShardedEncoder`.
    """
    if groups.column is None:
        return encode
    ranks, replicas = groups.column.size(), 1 if groups.replicas is None else groups.replicas.size()
    form = GridRows(merge_size=merge_size, pixels=pixels, grid=grid)
    if block_patches is not None:
        form = GridBlocks(merge_size=merge_size, pixels=pixels, grid=grid, block_patches=block_patches, ranks=ranks)
    sharded = TowerSharding(
        encode=encode,
        form=form,
        group=groups.column,
        cp_size=ranks,
        modules=modules,
        alpha=alpha,
        language_model=None,
        name=f"vision_tp_dp ({replicas} replicas)",
        replicas=replicas,
    )
    if not isinstance(form, GridBlocks):
        return sharded
    signature = inspect.signature(encode.forward if isinstance(encode, nn.Module) else encode)

    def unpacked(*args: Any, **kwargs: Any) -> Any:
        output = sharded(*args, **kwargs)
        indices = form.unpack_indices(signature.bind(*args, **kwargs).arguments)
        if not len(indices):
            return output
        levels = [level.index_select(0, indices) for level in feature_levels(output)]
        return like_output(output, iter(levels), [len(indices)])

    return unpacked
