"""Qwen3-VL and Qwen3.5: an inline block in `forward` that shards over CP itself, under `vision_dp_when_cp`."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="qwen3_vl",
    models=(Place("models/qwen_vl/modelling_qwen3_vl/model.py", "Qwen3VLModel"),),
    calls=(Call("forward", "self.vision_model"),),
    providers=(
        Place("models/qwen_vl/qwen3_vl_provider.py", "Qwen3VLModelProvider"),
        Place("models/qwen_vl/qwen3_vl_provider.py", "Qwen3VLMoEModelProvider"),
        Place("models/qwen_vl/qwen35_vl_provider.py", "Qwen35VLModelProvider"),
        Place("models/qwen_vl/qwen35_vl_provider.py", "Qwen35VLMoEModelProvider"),
    ),
    unit="temporal-patch",
    form="grid-rows",
    examples=(
        Example(
            Outcome.UPGRADE,
            "sharded-already",
            """
from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.utils import AllGatherVisionEmbeddings, split_data_cp_rank

class Qwen3VLModel:
    def forward(self, ids, data, grid, size, rank):
        rows, levels = self.vision_model(hidden_states=data, grid_thw=grid)
        if size > 1 and self.config.vision_dp_when_cp:
            rows = AllGatherVisionEmbeddings.apply(rows, self.lengths, self.pg_collection.cp)
        return self.language_model(split_data_cp_rank(self.merge(ids, rows, levels), size, 0, rank))
""",
        ),
    ),
    seen={"refused no-context-parallel": "0.3", "upgrade sharded-already": "0.4 0.5 0.6 main"},
)
