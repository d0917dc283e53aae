"""GLM-5 Next: the inner model's `get_image_features` runs tower and merger; attention stays within a frame."""

from collections.abc import Mapping

from skillgen.kernel.model import Edit, InsertBefore, Outcome, ReplaceCallee
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Wrap the tower where it is called."""
    path, encode, tower = site.path, "Glm5NextModel.get_image_features", "self.visual"
    return [
        InsertBefore(path=path, function=encode, anchor=f"call:{tower}", code=code["shard"]),
        ReplaceCallee(path=path, function=encode, call=tower, callee="visual"),
    ]


ADAPTER = FrameAdapter(
    family="glm5_next",
    path="components/models/glm5_next/model.py",
    cls="Glm5NextForConditionalGeneration",
    layouts=(
        Layout(
            calls=(Call("Glm5NextModel.get_image_features", "self.visual"),),
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
class Glm5NextModel:
    def get_image_features(self, pixel_values, image_grid_thw):
        return self.visual(pixel_values, image_grid_thw)

class Glm5NextForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, batch, num_chunks=1):
        return {"cp_sharder": self.sharder}
    def get_image_features(self, pixel_values, image_grid_thw):
        return self.model.get_image_features(pixel_values, image_grid_thw)
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.7"},
)
