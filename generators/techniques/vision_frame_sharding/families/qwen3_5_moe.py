"""Qwen3.5-MoE: Hugging Face's helpers for images and for videos, called once each before the sequence is sharded."""

from collections.abc import Mapping

from skillgen.kernel.model import AddImport, AddMethod, Edit, InsertAfter, Outcome, ReplaceCallee
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout
from skillgen.techniques.vision_frame_sharding.families import _merged

HOOK = "prepare_model_inputs_for_cp"


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Let another object offer both helpers, where they are to encode in shares."""
    path, function = site.path, f"{site.cls}.{HOOK}"
    embed = "inputs_embeds = self.get_input_embeddings()(input_ids)"
    return [
        AddImport(path=path, module="types", names=("SimpleNamespace",)),
        AddMethod(path=path, cls=site.cls, after=HOOK, code=code["shard"]),
        InsertAfter(path=path, function=function, anchor=embed, code=code["gate"]),
        *(
            ReplaceCallee(path=path, function=function, call=f"self.model.{name}", callee=f"features.{name}")
            for name in ("get_image_features", "get_video_features")
        ),
    ]


ADAPTER = FrameAdapter(
    family="qwen3_5_moe",
    path="components/models/qwen3_5_moe/model.py",
    cls="Qwen3_5MoeForConditionalGeneration",
    docs="qwen3-5",
    layouts=(
        _merged.LAYOUT,
        Layout(
            calls=(Call(HOOK, "self.model.get_image_features"), Call(HOOK, "self.model.get_video_features")),
            unit="frame",
            form="grid-rows",
            verified="0.5.0",
            example="vlm_finetune/qwen3_5_moe/qwen3_6_35b_medpix_ep8cp2_vision_frame_sharding.yaml",
            edits=edits,
        ),
    ),
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
class Qwen3_5MoeForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, input_ids, pixel_values, grid, videos, video_grid):
        rows = self.model.get_image_features(pixel_values, grid, return_dict=True).pooler_output
        more = self.model.get_video_features(videos, video_grid, return_dict=True).pooler_output
        return {"inputs_embeds": self.merge(input_ids, rows, more)}
""",
        ),
    ),
    seen={
        "refused no-context-parallel-hook": "0.4",
        "applicable replicated-encoder": "0.5",
        "upgrade sharded-already": "0.6 0.7 main",
    },
)
