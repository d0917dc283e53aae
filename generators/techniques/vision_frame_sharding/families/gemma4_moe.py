"""Gemma 4: under context parallelism `_cp_sunk_prepare_inputs` encodes padded patches; the rows depend on the data."""

from collections.abc import Mapping

from skillgen.kernel.model import Edit, InsertBefore, Outcome, PassKeyword, ReplaceCallee
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout

PREPARE, FEATURES = "_cp_sunk_prepare_inputs", "self.model.get_image_features"
FLAG = "supports_cp_vision_frame_sharding=True"
VARIANTS = (  # how the capabilities of mixture, audio and plain variant begin
    "supports_tp=False,",
    "supports_tp=True, supports_cp=True, supports_pp=False,",
    "supports_tp=True, supports_cp=True, supports_pp=True,",
)


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Wrap the bound Hugging Face method; the call without context parallelism stays as it is."""
    path, prepare = site.path, f"{site.cls}.{PREPARE}"
    declared = [
        PassKeyword(
            path=path,
            function=f"{site.cls}.get_capabilities",
            call="ModelCapabilities",
            code=FLAG,
            after="supports_ep",
            within=f"return ModelCapabilities( {variant}",
        )
        for variant in VARIANTS
    ]
    return [
        InsertBefore(path=path, function=prepare, anchor=f"call:{FEATURES}", code=code["shard"]),
        ReplaceCallee(path=path, function=prepare, call=FEATURES, callee="get_image_features"),
        *declared,
    ]


ADAPTER = FrameAdapter(
    family="gemma4_moe",
    path="components/models/gemma4_moe/model.py",
    cls="Gemma4ForConditionalGeneration",
    layouts=(Layout(calls=(Call(PREPARE, FEATURES),), unit="image", form="padded-patches", edits=edits),),
    capabilities=False,
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
class Gemma4ForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, batch, num_chunks=1):
        return {"cp_sharder": self.sharder}
    def _cp_sunk_prepare_inputs(self, input_ids, pixel_values, image_position_ids):
        rows = self.model.get_image_features(pixel_values, image_position_ids=image_position_ids).pooler_output
        return self.splice(input_ids, rows)
""",
        ),
    ),
    seen={"refused no-context-parallel-hook": "0.4 0.5", "applicable replicated-encoder": "0.6 0.7 main"},
)
