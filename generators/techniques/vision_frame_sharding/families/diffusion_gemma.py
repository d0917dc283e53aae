"""DiffusionGemma: a text model that denoises blocks, without a vision tower."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter

ADAPTER = FrameAdapter(
    family="diffusion_gemma",
    path="components/models/diffusion_gemma/model.py",
    cls="DiffusionGemmaForBlockDiffusion",
    refused=("no-vision-tower", "it denoises blocks of text and builds no vision tower"),
    examples=(
        Example(
            Outcome.REFUSED,
            "no-vision-tower",
            "class DiffusionGemmaForBlockDiffusion: ...\n",
        ),
    ),
    seen={"refused no-vision-tower": "0.6 0.7 main"},
)
