"""Qwen3.5: shards frames itself from 0.6 on; before that the model is Hugging Face's and has no way into CP."""

from collections.abc import Mapping
from dataclasses import replace

from skillgen.kernel.model import Edit, Outcome, ReplaceWords
from skillgen.techniques.shared.adapter import Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite
from skillgen.techniques.vision_frame_sharding.families import _merged


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """What is common to both Qwen3.5, and the reference in a docstring."""
    old, new = f"cp_vision_frame_shard.{_merged.UPSTREAM}", f"vision_frame_sharding.{_merged.UPSTREAM}"
    scope = f"{site.cls}._encode_vision_for_cp"
    return [*_merged.edits(site, code), ReplaceWords(path=site.path, scope=scope, old=old, new=new)]


ADAPTER = FrameAdapter(
    family="qwen3_5",
    path="components/models/qwen3_5/model.py",
    cls="Qwen3_5ForConditionalGeneration",
    layouts=(replace(_merged.LAYOUT, edits=edits),),
    examples=(
        Example(
            Outcome.UPGRADE,
            "sharded-already",
            """
from nemo_automodel.components.distributed.cp_vision_frame_shard import maybe_distribute_visual

class Qwen3_5ForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, batch, num_chunks=1):
        return {"cp_sharder": self.sharder}
    def _encode_vision_for_cp(self, pixel_values, grid_thw, *, is_video):
        return maybe_distribute_visual(self.model.visual, pixel_values, grid_thw).pooler_output
    def _embed_and_splice_for_cp(self, ids, pixel_values, pixel_values_videos, image_grid_thw, video_grid_thw):
        images = self._encode_vision_for_cp(pixel_values, image_grid_thw, is_video=False)
        return self.splice(ids, images, self._encode_vision_for_cp(pixel_values_videos, video_grid_thw, is_video=True))
""",
        ),
    ),
    seen={"refused no-context-parallel-hook": "0.5", "upgrade sharded-already": "0.6 0.7 main"},
)
