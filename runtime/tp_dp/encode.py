"""Share out the images of one encoder call over the vision DP column, encoded on vision TP groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from ..api import feature_levels, like_output, shard_over_cp
from ..forms import GridRows
from .blocks import GridBlocks
from .groups import VisionGroups


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
    agreement: str = "strict",
    name: str = "",
) -> Callable[..., Any]:
    """Wrap an encoder call so that each vision TP group encodes its share of the images, or of blocks of them.

    Without a column there is nothing to share out, and the call stays as it is. Gradients of the gathered features
    are the same on the text TP ranks of the column, and are summed over its CP ranks only; parameter gradients then
    miss the images of the other replicas: see `sum_replica_gradients`. For the other options see `shard_over_cp`.
    """
    if groups.column is None:
        return encode
    ranks = groups.column.size()
    form = GridRows(merge_size=merge_size, pixels=pixels, grid=grid)
    if block_patches is not None:
        form = GridBlocks(merge_size=merge_size, pixels=pixels, grid=grid, block_patches=block_patches, ranks=ranks)
    sharded = shard_over_cp(
        encode,
        form,
        group=groups.column,
        cp_size=ranks,
        modules=modules,
        alpha=alpha,
        agreement=agreement,
        what=f"{name} vision_tp_dp".strip(),
        replicas=1 if groups.replicas is None else groups.replicas.size(),
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
