"""HunyuanImage 3: generates images; the vision encoder of the release is not built."""

from skillgen.adapters.base import Example, FrameAdapter
from skillgen.model import Outcome

ADAPTER = FrameAdapter(
    family="hunyuan_image3",
    path="components/models/hunyuan_image3/model.py",
    cls="HunyuanImage3ForCausalMM",
    refused=("no-vision-tower", "it generates images, and the vision encoder of the release is not built"),
    examples=(Example(Outcome.REFUSED, "no-vision-tower", "class HunyuanImage3ForCausalMM: ...\n"),),
)
