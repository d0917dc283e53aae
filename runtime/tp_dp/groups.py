"""The process groups of a vision encoder with degrees of its own, made where the text model has none like them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
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
    `reuse` with the same ranks is taken instead of a new one, and a new one has the timeout of `text_tp`.
    """
    ranks, text = sorted(dist.get_process_group_ranks(world)), dist.get_process_group_ranks(text_tp)
    if text not in tp_groups(ranks, len(text)):
        raise ValueError(f"the text TP group must be ranks in a row of {ranks}, got {text}")
    device = torch.device("cuda" if dist.get_backend(text_tp) == "nccl" else "cpu")
    timeout = text_tp._get_backend(device).options._timeout
    known = [text_tp, world, *(group for group in reuse if group is not None)]

    def find(name: str, lists: list[list[int]]) -> dist.ProcessGroup:
        mine = next(members for members in lists if dist.get_rank() in members)
        if not any(dist.get_process_group_ranks(group) == mine for group in known):
            known.append(dist.new_group(mine, timeout=timeout, use_local_synchronization=True, group_desc=name))
        return next(group for group in known if dist.get_process_group_ranks(group) == mine)

    # One order on every rank: with local synchronization, ranks that make their groups in another wait for each other.
    replicas = replica_groups(ranks, tp_size, len(text))
    tp = find("vision_tp", tp_groups(ranks, tp_size))
    column = find("vision_dp", dp_columns(ranks, tp_size, len(ranks) // tp_size)) if tp_size < len(ranks) else None
    return VisionGroups(tp, column, find("vision_replicas", replicas) if tp_size < len(text) else None)
