"""Kimi K2.5: `_extract_image_features` runs a remote tower and a projector on lists, one tensor per grid row."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="kimi_vl",
    models=(Place("models/kimi_vl/modeling_kimi_k25_vl.py", "KimiK25VLModel"),),
    calls=(
        Call("_extract_image_features", "self.vision_tower"),
        Call("forward", "self._extract_image_features"),
    ),
    providers=(Place("models/kimi_vl/kimi_k25_vl_provider.py", "KimiK25VLModelProvider"),),
    unit="row",
    form="grid-rows",
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
def _split_on_cp_rank(value, size, rank, seq_dim):
    return value.chunk(size, seq_dim)[rank]

class KimiK25VLModel:
    def _extract_image_features(self, pixel_values, grid_thws):
        return self.mm_projector(self.vision_tower(pixel_values, grid_thws))
    def forward(self, ids, pixel_values, grid_thws, size, rank):
        merged = self.merge(ids, self._extract_image_features(pixel_values, grid_thws))
        return self.language_model(_split_on_cp_rank(merged, size, rank, seq_dim=0))
""",
        ),
    ),
    seen={"refused no-context-parallel": "0.4 0.5", "applicable replicated-encoder": "0.6 main"},
)
