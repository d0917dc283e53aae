"""Qwen3.5 MoE: the tower and the splice of Qwen3.5."""

from __future__ import annotations

from skillgen.evals.vision_frame_sharding.families.qwen3_5 import Qwen35


class Qwen35Moe(Qwen35):
    name = "qwen3_5_moe"
    stem = "Qwen3_5Moe"


FAMILY = Qwen35Moe
