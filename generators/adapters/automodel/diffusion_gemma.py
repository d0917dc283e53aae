"""DiffusionGemma: a text model that denoises blocks, without a vision tower."""

from skillgen.adapters.base import Example, FrameAdapter
from skillgen.model import Outcome

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
)
