"""HunyuanImage 3: generates images; the vision encoder of the release is not built."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter

ADAPTER = FrameAdapter(
    family="hunyuan_image3",
    path="components/models/hunyuan_image3/model.py",
    cls="HunyuanImage3ForCausalMM",
    refused=("no-vision-tower", "it generates images, and the vision encoder of the release is not built"),
    examples=(Example(Outcome.REFUSED, "no-vision-tower", "class HunyuanImage3ForCausalMM: ...\n"),),
    seen={"refused no-vision-tower": "0.7"},
)
