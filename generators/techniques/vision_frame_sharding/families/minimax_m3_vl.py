"""MiniMax M3: `_splice_multimodal` runs tower and merger on a list of grids; the frames of an entry attend to all."""

from collections.abc import Mapping

from skillgen.kernel.model import Edit, InsertBefore, Outcome, ReplaceCallee
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout

SPLICE, TOWER = "_splice_multimodal", "self.vision_tower"


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Wrap the tower, which takes whole entries."""
    path, splice = site.path, f"{site.cls}.{SPLICE}"
    return [
        InsertBefore(path=path, function=splice, anchor="call:cp_dispatcher_suspended", code=code["shard"]),
        ReplaceCallee(path=path, function=splice, call=TOWER, callee="vision_tower"),
    ]


ADAPTER = FrameAdapter(
    family="minimax_m3_vl",
    path="components/models/minimax_m3_vl/model.py",
    cls="MiniMaxM3SparseForConditionalGeneration",
    layouts=(
        Layout(
            calls=(Call(SPLICE, TOWER), Call(SPLICE, "cp_dispatcher_suspended")),
            unit="entry",
            form="grid-rows",
            edits=edits,
        ),
    ),
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
class MiniMaxM3SparseForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, batch, num_chunks=1):
        return {"cp_sharder": self.sharder}
    def _splice_multimodal(self, states, ids, pixel_values, grid_thw, token):
        with cp_dispatcher_suspended(self.cp_mesh):
            rows = self.vision_tower(pixel_values, grid_thw)
        return self.splice(states, ids == token, rows)
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.6 0.7 main"},
)
