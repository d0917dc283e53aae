"""Qwen2.5-Omni: `forward` calls the tower itself, once for images and once for videos."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="qwen25_omni",
    models=(Place("models/qwen_omni/modeling_qwen25_omni/thinker_model.py", "Qwen25OmniThinkerModel"),),
    calls=(Call("forward", "self.visual"),),
    providers=(Place("models/qwen_omni/qwen25_omni_provider.py", "Qwen25OmniModelProvider"),),
    unit="temporal-patch",
    form="grid-rows",
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.utils import split_data_cp_rank

class Qwen25OmniThinkerModel:
    def forward(self, ids, pixel_values, image_grid_thw, size, rank):
        rows = self.visual(pixel_values, grid_thw=image_grid_thw).pooler_output
        return self.language_model(split_data_cp_rank(self.merge(ids, rows), size, 0, rank))
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.4 0.5 0.6 main"},
)
