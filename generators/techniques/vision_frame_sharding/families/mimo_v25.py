"""MiMo V2.5 in its own folder: the text model alone."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter

ADAPTER = FrameAdapter(
    family="mimo_v25",
    path="components/models/mimo_v25/model.py",
    cls="MiMoV2ForCausalLM",
    refused=("no-vision-tower", "only the text model of the release is built"),
    examples=(Example(Outcome.REFUSED, "no-vision-tower", "class MiMoV2ForCausalLM: ...\n"),),
    seen={"refused no-vision-tower": "0.7"},
)
