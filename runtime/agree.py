"""Keep ranks from hanging because another failed: check the group, then agree before the payload."""

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn


class VisionShardingError(RuntimeError):
    """The ranks of a context-parallel group cannot shard this batch together."""


def check_group(group: dist.ProcessGroup | None, cp_size: int, language_model: nn.Module | None, name: str) -> None:
    """Before any collective: ValueError if the group is missing, or does not fit `cp_size` or the language model's."""
    mismatch = f"{name} does not match its process group:"
    if group is None or group.size() != cp_size:
        raise ValueError(f"{mismatch} config={cp_size}, group={None if group is None else group.size()}")
    sliced = getattr(getattr(language_model, "pg_collection", None), "cp", None) or group
    ours, theirs = dist.get_process_group_ranks(group), dist.get_process_group_ranks(sliced)
    if ours != theirs:
        raise ValueError(f"{mismatch} images over ranks {ours}, the language model's sequence over ranks {theirs}")


def plan_digest(*facts: object) -> int:
    """64-bit digest of what all ranks must share; equal facts give equal digests in every process."""
    return int.from_bytes(hashlib.blake2b(repr(facts).encode(), digest_size=8).digest(), "little", signed=True)


def agree(
    digest: int, failure: Exception | None, summary: str, group: dist.ProcessGroup, device: torch.device, name: str
) -> None:
    """Exchange 16 bytes per rank (digest, status); VisionShardingError on every rank if one failed or differs.

    The error names each failing rank and its reason. A rank that does not come is noticed at the group's timeout.
    """
    # On a stream of its own the exchange does not wait for the encoder's kernels.
    with torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext():
        mine = torch.tensor([digest, int(failure is not None)], dtype=torch.int64, device=device)
        received = [torch.empty_like(mine) for _ in range(group.size())]
        try:
            dist.all_gather(received, mine, group=group)
        except RuntimeError as error:
            told = f"{name}: a rank did not answer: it has no images, sharding is off on it alone, or it has died"
            raise VisionShardingError(told) from failure or error
        exchanged = torch.stack(received).tolist()
    failed = any(status for _, status in exchanged)
    if not failed and len({theirs for theirs, _ in exchanged}) == 1:
        return
    reason = f"{type(failure).__name__}: {failure}" if failure is not None else None if failed else summary
    reasons: list[str | None] = [None] * group.size()
    dist.all_gather_object(reasons, reason, group=group)
    ranks = zip(dist.get_process_group_ranks(group), reasons)
    told = "; ".join(f"rank {rank}: {text}" for rank, text in ranks if text is not None)
    trouble = "the encoder failed" if failed else "the ranks see different batches"
    raise VisionShardingError(f"{name}: {trouble} on {told}") from failure


def is_trainable(modules: Sequence[nn.Module], pixels: Tensor) -> bool:
    """Whether backward takes part: decided from parameters, which every rank shares, not from local tensors."""
    parameters = (p.requires_grad for module in modules for p in module.parameters())
    return torch.is_grad_enabled() and (pixels.requires_grad or any(parameters))
