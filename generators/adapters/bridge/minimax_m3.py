"""MiniMax M3: `_project_vision` runs tower and projector. Its attention has no mask, so all items of a call are one."""

from skillgen.adapters.base import Adapter, Call, Example, Place
from skillgen.model import Outcome

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
    examples=(),
)
