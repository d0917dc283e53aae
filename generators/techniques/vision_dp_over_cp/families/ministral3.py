"""Ministral 3: HF's `get_image_features` bound to the model, called once in `forward`, on padded pixels and sizes."""

from collections.abc import Mapping

from skillgen.kernel.model import AddMethod, Edit, InsertAfter, InsertBefore, Outcome, ReplaceCallee
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter, Site


def edits(site: Site, code: Mapping[str, str]) -> list[Edit]:
    """Wrap the bound Hugging Face method where `forward` calls it."""
    path, init, forward = site.model_path, f"{site.cls}.__init__", f"{site.cls}.forward"
    call = "self.get_image_features"
    return [
        InsertAfter(path=path, function=init, anchor="self.vp_stage = vp_stage", code=code["gate"]),
        AddMethod(path=path, cls=site.cls, after="set_input_tensor", code=code["shard"]),
        InsertBefore(path=path, function=forward, anchor=f"call:{call}", code=code["call"]),
        ReplaceCallee(path=path, function=forward, call=call, callee="get_image_features"),
    ]


ADAPTER = Adapter(
    family="ministral3",
    models=(Place("models/ministral3/modeling_ministral3.py", "Ministral3Model"),),
    calls=(Call("forward", "self.get_image_features"),),
    providers=(Place("models/ministral3/ministral3_provider.py", "Ministral3ModelProvider"),),
    unit="image",
    form="image-batch",
    tests="ministral3",
    docs="ministral3",
    edits=edits,
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
from megatron.bridge.utils.common_utils import slice_batch_for_context_parallel

class Ministral3Model:
    def forward(self, ids, pixel_values=None, image_sizes=None):
        rows = self.get_image_features(pixel_values, image_sizes=image_sizes).pooler_output
        return self.language_model(slice_batch_for_context_parallel(self.merge(ids, rows)))
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.3 0.4 0.5 0.6 main"},
)
