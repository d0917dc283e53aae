"""Kimi K3: `forward` replaces each placeholder by an image's rows, after the ids were cut for context parallelism."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, Layout

ADAPTER = FrameAdapter(
    family="kimi_k3",
    path="components/models/kimi_k3/multimodal.py",
    cls="KimiK3ForConditionalGeneration",
    layouts=(
        Layout(
            calls=(
                Call("_extract_image_features", "self.vision_tower"),
                Call("forward", "self._merge_input_ids_with_image_features"),
            ),
            unit="entry",
            form="grid-rows",
        ),
    ),
    refused=(
        "length-changes-in-forward",
        "forward lengthens the sequence by the images' rows, and the ids were cut before that",
    ),
    examples=(
        Example(
            Outcome.REFUSED,
            "length-changes-in-forward",
            """
class KimiK3ForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, batch, num_chunks=1):
        return {"cp_sharder": self.sharder}
    def _extract_image_features(self, pixel_values, grid_thws):
        return self.mm_projector(self.vision_tower(pixel_values, grid_thws))
    def forward(self, input_ids, pixel_values, grid_thws):
        rows = self._extract_image_features(pixel_values, grid_thws)
        return self.decode(self._merge_input_ids_with_image_features(rows, input_ids))
""",
        ),
    ),
    seen={"refused length-changes-in-forward": "0.6 0.7 main"},
)
