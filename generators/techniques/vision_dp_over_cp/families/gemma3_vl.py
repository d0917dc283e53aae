"""Gemma 3 VL: HF's `get_image_features` on images of one size. From 0.6 on the provider rejects CP."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="gemma3_vl",
    models=(Place("models/gemma_vl/modeling_gemma3_vl.py", "Gemma3VLModel"),),
    calls=(Call("forward", "self.get_image_features"),),
    providers=(Place("models/gemma_vl/gemma3_vl_provider.py", "Gemma3VLModelProvider"),),
    unit="image",
    form="image-batch",
    examples=(
        Example(
            Outcome.REFUSED,
            "context-parallel-rejected",
            """
from megatron.bridge.utils.common_utils import slice_batch_for_context_parallel

class Gemma3VLModel:
    def forward(self, ids, pixel_values):
        rows = self.get_image_features(pixel_values, return_dict=True).pooler_output
        return self.language_model(slice_batch_for_context_parallel(self.merge(ids, rows)))
""",
            """
class Gemma3VLModelProvider:
    def provide(self):
        if self.context_parallel_size != 1:
            raise ValueError(self.context_parallel_size)
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.3 0.4 0.5", "refused context-parallel-rejected": "0.6 main"},
)
