"""Gemma 4 VL: `get_image_features` runs tower and embedder on padded patches; the number of rows depends on data."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="gemma4_vl",
    models=(Place("models/gemma_vl/modeling_gemma4_vl.py", "Gemma4VLModel"),),
    calls=(
        Call("get_image_features", "self.vision_tower"),
        Call("forward", "self.get_image_features"),
    ),
    providers=(
        Place("models/gemma_vl/gemma4_vl_provider.py", "Gemma4VLModelProvider"),
        Place("models/gemma_vl/gemma4_vl_provider.py", "Gemma4DenseVLProvider"),
    ),
    unit="image",
    form="image-batch",
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
from megatron.bridge.utils.common_utils import slice_batch_for_context_parallel

class Gemma4VLModel:
    def get_image_features(self, pixel_values, image_position_ids=None):
        return self.embed_vision(self.vision_tower(pixel_values, image_position_ids).last_hidden_state)
    def forward(self, ids, pixel_values, image_position_ids):
        rows = self.get_image_features(pixel_values, image_position_ids)
        return self.language_model(slice_batch_for_context_parallel(self.merge(ids, rows)))
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.5 0.6 main"},
)
