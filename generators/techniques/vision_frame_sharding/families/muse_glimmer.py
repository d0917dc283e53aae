"""Muse Glimmer: `_embed_vision` runs encoder, adapter and projection for each modality; attention stays in a frame."""

from collections.abc import Mapping

from skillgen.kernel.model import AddMethod, Edit, InsertBefore, Outcome, ReplaceStatement
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout

INNER = "MuseGlimmerModel"
ENCODE = """\
with cp_dispatcher_suspended(self.cp_mesh):
    vision_features = self.vision_encoder(values, grid_thw)
vision_features = self.vision_adapter(vision_features)
vision_features = self.vision_projection(vision_features)
if self.perception_emb_norm is not None:
    vision_features = self.perception_emb_norm(vision_features)
"""


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Encoder, adapter and projection in one method, so that all three work on a share."""
    path, embed = site.path, f"{INNER}._embed_vision"
    return [
        AddMethod(path=path, cls=INNER, after="__init__", code=code["method"]),
        InsertBefore(path=path, function=embed, anchor="hidden_states = hidden_states.clone()", code=code["shard"]),
        ReplaceStatement(path=path, function=embed, anchor=ENCODE, code=code["encode"]),
    ]


ADAPTER = FrameAdapter(
    family="muse_glimmer",
    path="components/models/muse_glimmer/model.py",
    cls="MuseGlimmerForConditionalGeneration",
    layouts=(
        Layout(
            calls=(
                Call(f"{INNER}._embed_vision", "self.vision_encoder"),
                Call(f"{INNER}._embed_vision", "self.vision_adapter"),
                Call(f"{INNER}._embed_vision", "self.vision_projection"),
            ),
            unit="frame",
            form="grid-rows",
            edits=edits,
        ),
    ),
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
class MuseGlimmerModel:
    def _embed_vision(self, ids, states, pixels, grid):
        rows = self.vision_projection(self.vision_adapter(self.vision_encoder(pixels, grid)))
        return self.splice(ids, states, rows)

class MuseGlimmerForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, batch, num_chunks=1):
        return {"cp_sharder": self.sharder}
    def forward(self, ids, pixel_values, image_grid_thw):
        return self.model(ids, pixel_values, image_grid_thw)
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.7 main"},
)
