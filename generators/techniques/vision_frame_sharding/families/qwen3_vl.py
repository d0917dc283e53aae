"""Qwen3-VL: shards frames itself from 0.6 on, images and videos in one call; the deepstack levels come along."""

from collections.abc import Mapping

from skillgen.kernel.model import Edit, InsertBefore, Outcome, ReplaceStatement
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout
from skillgen.techniques.vision_frame_sharding.families._merged import UPSTREAM, drop_in

PREPARE = "_prepare_visual_inputs_for_cp"
FIRST = "image_pixels = pixel_values.type(self.model.visual.dtype)"
COUNT = """\
spatial_merge_size_sq = self.model.visual.spatial_merge_size**2
num_image_tokens = int((image_grid_thw.prod(-1) // spatial_merge_size_sq).sum().item())
image_embeds = merged_output.pooler_output[:num_image_tokens]
video_embeds = merged_output.pooler_output[num_image_tokens:]
"""


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Our plan and exchange, and the images' rows counted before the tower."""
    path, prepare = site.path, f"{site.cls}.{PREPARE}"
    return [
        *drop_in(path),
        InsertBefore(path=path, function=prepare, anchor=FIRST, code=code["count"]),
        ReplaceStatement(path=path, function=prepare, anchor=COUNT, code=code["split"]),
    ]


ADAPTER = FrameAdapter(
    family="qwen3_vl",
    path="components/models/qwen3_vl/model.py",
    cls="Qwen3VLForConditionalGeneration",
    layouts=(Layout(calls=(Call(PREPARE, UPSTREAM),), unit="frame", form="grid-rows", wired=True, edits=edits),),
    examples=(
        Example(
            Outcome.UPGRADE,
            "sharded-already",
            """
from nemo_automodel.components.distributed.cp_vision_frame_shard import maybe_distribute_visual

class Qwen3VLForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, batch, num_chunks=1):
        return {"cp_sharder": self.sharder}
    def _prepare_visual_inputs_for_cp(self, ids, states, pixel_values, image_grid_thw):
        output = maybe_distribute_visual(self.model.visual, pixel_values, image_grid_thw)
        return self.splice(ids, states, output.pooler_output)
""",
        ),
    ),
    seen={"upgrade sharded-already": "0.6 0.7 main"},
)
