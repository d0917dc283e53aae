"""Qwen-Image-Edit: a diffusion transformer on cached latents; no tower runs in a step."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter

ADAPTER = FrameAdapter(
    family="qwen_image_edit",
    path="components/models/qwen_image_edit/adapter.py",
    cls="QwenImageEditAdapter",
    refused=("no-vision-tower", "a diffusion transformer trains on cached latents, and no tower runs in a step"),
    examples=(Example(Outcome.REFUSED, "no-vision-tower", "class QwenImageEditAdapter: ...\n"),),
    seen={"refused no-vision-tower": "0.6 0.7 main"},
)
