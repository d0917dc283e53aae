"""Degrees of a vision encoder's tensor and data parallelism, and the ranks that they group; no torch."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class VisionParallelConfig:
    """Degrees over the ranks that share one microbatch; None is not set."""

    tp_size: int | None = None
    dp_size: int | None = None

    def resolve_tp_dp(self, world_size: int) -> tuple[int, int]:
        """Fill in what is not set so that tp_size * dp_size == world_size; ValueError where that cannot be.

        With neither set, every rank holds the whole encoder. A second call gives what the first one gave.
        """
        if type(world_size) is not int or world_size < 1:
            raise ValueError(f"world_size must be a positive integer, got {world_size!r}")
        for option, value in (("vision_tp_size", self.tp_size), ("vision_dp_size", self.dp_size)):
            if value is not None and (type(value) is not int or value < 1 or world_size % value):
                told = f"must be a positive integer that divides the {world_size} ranks of a microbatch"
                raise ValueError(f"{option} {told}, got {value!r}")
        tp = self.tp_size or (world_size // self.dp_size if self.dp_size else 1)
        dp = self.dp_size or world_size // tp
        if tp * dp != world_size:
            told = f"must be the {world_size} ranks of a microbatch"
            raise ValueError(f"vision_tp_size * vision_dp_size {told}, got {tp} * {dp} = {tp * dp}")
        self.tp_size, self.dp_size = tp, dp
        return tp, dp


def tp_groups(world: Sequence[int], tp: int) -> list[list[int]]:
    """Every `tp` ranks in a row."""
    if tp < 1 or len(world) % tp:
        raise ValueError(f"tp must be positive and divide the {len(world)} ranks, got {tp}")
    return [list(world[start : start + tp]) for start in range(0, len(world), tp)]


def dp_columns(world: Sequence[int], tp: int, dp: int) -> list[list[int]]:
    """The ranks at one place of `dp` TP groups in a row: of all of them, or of as many as see the same images."""
    if tp < 1 or dp < 1 or len(world) % (tp * dp):
        raise ValueError(f"tp * dp must be positive and divide the {len(world)} ranks, got {tp} * {dp}")
    return [block[place::tp] for block in tp_groups(world, tp * dp) for place in range(tp)]


def replica_groups(world: Sequence[int], tp: int, text_tp: int) -> list[list[int]]:
    """The ranks of a text TP group that hold the same part of the encoder: megatron-core sums nothing over them."""
    if tp < 1 or text_tp < 1 or text_tp % tp:
        raise ValueError(f"tp must be positive and divide the text model's {text_tp}, got {tp}")
    return dp_columns(world, tp, text_tp // tp)
