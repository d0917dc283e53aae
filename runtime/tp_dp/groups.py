"""The process groups of a vision encoder with degrees of its own, made where the text model has none like them."""

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

    Every rank of the job calls it, as for megatron-core's own groups, also on pipeline stages without an encoder. A
    group of `text_tp`, `world` or `reuse` with the same ranks is taken instead of a new one, and a new one has the
    timeout of `text_tp`.
    """
    ranks, text = sorted(dist.get_process_group_ranks(world)), dist.get_process_group_ranks(text_tp)
    if text not in tp_groups(ranks, len(text)):
        raise ValueError(f"the text TP group must be ranks in a row of {ranks}, got {text}")
    replicas = replica_groups(ranks, tp_size, len(text))
    columns = dp_columns(ranks, tp_size, len(ranks) // tp_size)
    lists = {"vision_tp": tp_groups(ranks, tp_size), "vision_dp": columns, "vision_replicas": replicas}
    mine = {name: part for name, parts in lists.items() for part in parts if dist.get_rank() in part}
    mine = {name: part for name, part in mine.items() if name == "vision_tp" or len(part) > 1}
    known = [text_tp, world, *(group for group in reuse if group is not None)]
    there = [dist.get_process_group_ranks(group) for group in known]
    missing = {tuple(members): name for name, members in reversed(mine.items()) if members not in there}
    everyones: list[dict[tuple[int, ...], str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyones, missing)
    device = torch.device("cuda" if dist.get_backend(text_tp) == "nccl" else "cpu")
    timeout = text_tp._get_backend(device).options._timeout
    # All ranks make all groups: left to the members, torch names a group after how many groups each of them is in.
    for members, name in sorted({item for missing in everyones for item in missing.items()}):
        made = dist.new_group(list(members), timeout=timeout, group_desc=name)
        known += [made] if dist.get_rank() in members else []
    by_ranks = {tuple(dist.get_process_group_ranks(group)): group for group in reversed(known)}
    found = {name: by_ranks[tuple(members)] for name, members in mine.items()}
    return VisionGroups(found["vision_tp"], found.get("vision_dp"), found.get("vision_replicas"))
