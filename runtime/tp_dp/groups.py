"""The process groups of a vision encoder with degrees of its own, made where the text model has none like them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist

from .degrees import dp_columns, replica_groups, tp_groups


@dataclass(frozen=True)
class VisionGroups:
    """This rank's groups; None where it would be alone.

    `tp` shards the encoder, `column` shares out the images, `replicas` holds equal weights within a text TP group.
    """

    tp: dist.ProcessGroup
    column: dist.ProcessGroup | None
    replicas: dist.ProcessGroup | None


def make_groups(
    tp_size: int,
    *,
    text_tp: dist.ProcessGroup,
    world: dist.ProcessGroup,
    reuse: Sequence[dist.ProcessGroup | None] = (),
) -> VisionGroups:
    """Groups for a vision TP of `tp_size` over `world`, the ranks of a microbatch (TP fastest, then CP).

    Every rank of `world` calls it, also on pipeline stages without an encoder; a group of `text_tp`, `world` or
    `reuse` with the same ranks is taken instead of a new one.
    """
    ranks, text = dist.get_process_group_ranks(world), dist.get_process_group_ranks(text_tp)
    if text not in tp_groups(ranks, len(text)):
        raise ValueError(f"the text TP group must be ranks in a row of {ranks}, got {text}")
    known = [text_tp, world, *(group for group in reuse if group is not None)]
    made = []
    for name, lists in (
        ("vision_tp", tp_groups(ranks, tp_size)),
        ("vision_dp", dp_columns(ranks, tp_size, len(ranks) // tp_size)),
        ("vision_replicas", replica_groups(ranks, tp_size, len(text))),
    ):
        mine = next(members for members in lists if dist.get_rank() in members)
        same = [group for group in known if dist.get_process_group_ranks(group) == mine]
        if not same and (len(mine) > 1 or name == "vision_tp"):
            same = [dist.new_group(mine, use_local_synchronization=True, group_desc=name)]
            known += same
        made.append(same[0] if same else None)
    tp, *others = made
    column, replicas = (group if group is not None and group.size() > 1 else None for group in others)
    return VisionGroups(tp, column, replicas)
