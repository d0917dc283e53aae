"""DeepSeek V4: the tower runs once per image, in a loop over the placeholders that a rank was left with."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, Layout

ADAPTER = FrameAdapter(
    family="deepseek_v4",
    path="components/models/deepseek_v4/model.py",
    cls="DeepseekV4ForCausalLM",
    layouts=(
        Layout(
            calls=(
                Call("DeepseekV4Model.encode_image", "self.vision"),
                Call("DeepseekV4Model.merge_image_embeddings", "self.encode_image"),
            ),
            unit="image",
            form="image-list",
        ),
    ),
    refused=(
        "ids-cut-before-encoder",
        "the ids are cut before the images are encoded, so a rank may see part of an image's placeholders",
    ),
    examples=(
        Example(
            Outcome.REFUSED,
            "ids-cut-before-encoder",
            """
class DeepseekV4Model:
    def encode_image(self, patches, height, width):
        return self.aligner(self.vision(patches, height, width), height, width)
    def merge_image_embeddings(self, embeds, pixel_values, grids):
        return self.merge(embeds, [self.encode_image(pixel_values, *grid) for grid in grids])

class DeepseekV4ForCausalLM:
    def prepare_model_inputs_for_cp(self, batch, num_chunks=1):
        return {"cp_sharder": self.sharder}
    def forward(self, input_ids, pixel_values):
        return self.model(input_ids, pixel_values)
""",
        ),
    ),
    seen={"refused ids-cut-before-encoder": "0.7"},
)
