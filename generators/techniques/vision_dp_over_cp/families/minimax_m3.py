"""MiniMax M3: `_project_vision` runs tower and projector. Its attention has no mask, which couples all items."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="minimax_m3",
    models=(Place("models/minimax_m3/modeling_minimax_m3_vl.py", "MiniMaxM3VLModel"),),
    calls=(
        Call("_project_vision", "self.vision_tower"),
        Call("get_image_features", "self._project_vision"),
        Call("get_video_features", "self._project_vision"),
        Call("forward", "self.get_image_features"),
        Call("forward", "self.get_video_features"),
    ),
    providers=(Place("models/minimax_m3/minimax_m3_bridge.py", "MiniMaxM3VLModelProvider"),),
    unit="row",
    form="grid-rows",
    attention="MiniMaxM3VisionAttention",
    examples=(
        Example(
            Outcome.REFUSED,
            "items-attend-to-one-another",
            """
import torch.nn.functional as F

class MiniMaxM3VisionAttention:
    def forward(self, states, rotary):
        return F.scaled_dot_product_attention(*self.qkv(states, rotary), scale=self.scale)

class MiniMaxM3VLModel:
    def _project_vision(self, pixel_values, grid_thw):
        return self.multi_modal_projector(self.vision_tower(pixel_values, grid_thw))
    def get_image_features(self, pixel_values, grid):
        return self._project_vision(pixel_values, grid)
    def get_video_features(self, pixel_values, grid):
        return self._project_vision(pixel_values, grid)
    def forward(self, ids, pixels, grid, videos, video_grid):
        rows = self.get_image_features(pixels, grid)
        return self.language_model(self.merge(ids, rows, self.get_video_features(videos, video_grid)))
""",
        ),
    ),
    seen={"refused items-attend-to-one-another": "0.6 main"},
)
