"""MiMo V2 Flash: `_get_multimodal_embeds` runs the tower once per modality, then takes this rank's feature rows."""

from collections.abc import Mapping

from skillgen.kernel.model import Edit, InsertBefore, Outcome, ReplaceCallee
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout

ENCODE = "_get_multimodal_embeds"


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Wrap the tower once for both modalities."""
    path, encode = site.path, f"{site.cls}.{ENCODE}"
    calls = [
        ReplaceCallee(path=path, function=encode, call="self.visual", callee="visual", within=within)
        for within in ("image_embeds = self.visual", "video_embeds = self.visual")
    ]
    return [InsertBefore(path=path, function=encode, anchor="if:has_image", code=code["shard"]), *calls]


ADAPTER = FrameAdapter(
    family="mimo_v2_flash",
    path="components/models/mimo_v2_flash/model.py",
    cls="MiMoV2FlashForCausalLM",
    layouts=(
        Layout(
            calls=(Call(ENCODE, "self.visual"),),
            unit="frame",
            form="grid-rows",
            verified="0.7.0",
            edits=edits,
        ),
    ),
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
class MiMoV2FlashForCausalLM:
    def prepare_model_inputs_for_cp(self, batch, num_chunks=1):
        return {"cp_sharder": self.sharder}
    def _get_multimodal_embeds(self, ids, states, pixel_values=None, image_grid_thw=None):
        return self.splice(ids, states, self.visual(pixel_values, image_grid_thw))
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.7"},
)
