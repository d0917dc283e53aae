"""GLM-4.5V: HF's feature methods bound to the model; nothing slices the sequence for CP."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="glm_vl",
    models=(Place("models/glm_vl/modeling_glm_45v.py", "GLM45VModel"),),
    calls=(Call("forward", "self.get_image_features"), Call("forward", "self.get_video_features")),
    providers=(Place("models/glm_vl/glm_45v_provider.py", "GLM45VModelProvider"),),
    unit="temporal-patch",
    form="grid-rows",
    examples=(
        Example(
            Outcome.REFUSED,
            "no-context-parallel",
            """
class GLM45VModel:
    def forward(self, ids, pixels, grid, videos, video_grid):
        rows = self.get_image_features(pixels, grid).pooler_output
        more = self.get_video_features(videos, video_grid).pooler_output
        return self.language_model(self.merge(ids, rows, more))
""",
        ),
    ),
    seen={"refused no-context-parallel": "0.3 0.4 0.5 0.6 main"},
)
