"""ERNIE 4.5 VL: HF's tower and resampler bound to the model; only positions are sliced for CP, not the sequence."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="ernie_vl",
    models=(Place("models/ernie_vl/modeling_ernie45_vl/model.py", "Ernie45VLModel"),),
    calls=(Call("forward", "self.get_image_features"), Call("forward", "self.get_video_features")),
    providers=(Place("models/ernie_vl/ernie45_vl_provider.py", "Ernie45VLModelProvider"),),
    unit="frame-pair",
    form="grid-rows",
    examples=(
        Example(
            Outcome.REFUSED,
            "no-context-parallel",
            """
class Ernie45VLModel:
    def forward(self, ids, pixels, grid, videos, video_grid):
        rows = self.get_image_features(pixels, grid).pooler_output
        more = self.get_video_features(videos, video_grid).pooler_output
        return self.language_model(self.merge(ids, rows, more))
""",
        ),
    ),
    seen={"refused no-context-parallel": "0.5 0.6 main"},
)
