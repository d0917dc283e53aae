"""EXAONE 4.5: an inline block in `forward` that always shards over CP, with a gather of its own."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="exaone45",
    models=(Place("models/exaone/exaone45/modelling_exaone45/model.py", "Exaone45Model"),),
    calls=(Call("forward", "self.vision_model"),),
    providers=(Place("models/exaone/exaone45/exaone45_provider.py", "Exaone45ModelProvider"),),
    unit="temporal-patch",
    form="grid-rows",
    examples=(
        Example(
            Outcome.UPGRADE,
            "sharded-already",
            """
from megatron.bridge.models.exaone.exaone45.modelling_exaone45.utils import AllGatherVisionEmbeddings

class Exaone45Model:
    def forward(self, ids, data, grid, lengths):
        rows = self.vision_model(hidden_states=data, grid_thw=grid)
        return self.language_model(self.merge(ids, AllGatherVisionEmbeddings.apply(rows, lengths)))
""",
        ),
    ),
    seen={"upgrade sharded-already": "0.6 main"},
)
