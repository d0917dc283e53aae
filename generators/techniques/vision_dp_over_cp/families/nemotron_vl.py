"""Nemotron VL: a wrapper whose forward is megatron-core's `LLaVAModel`."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="nemotron_vl",
    models=(Place("models/nemotron_vl/modeling_nemotron_vl.py", "NemotronVLModel"),),
    calls=(Call("forward", "self.llava_model"),),
    providers=(
        Place("models/nemotron_vl/nemotron_vl_provider.py", "NemotronVLModelProvider"),
        Place("models/nemotron_vl/nemotron_vl_provider.py", "NemotronNano12Bv2VLModelProvider"),
    ),
    unit="tile",
    form="image-batch",
    examples=(
        Example(
            Outcome.REFUSED,
            "call-site-in-megatron-core",
            """
from megatron.core.models.multimodal.llava_model import LLaVAModel

class NemotronVLModel:
    def __init__(self, llava_model: LLaVAModel):
        self.llava_model = llava_model
    def forward(self, *args, **kwargs):
        return self.llava_model(*args, **kwargs)
""",
        ),
    ),
    seen={"refused call-site-in-megatron-core": "0.3 0.4 0.5 0.6 main"},
)
