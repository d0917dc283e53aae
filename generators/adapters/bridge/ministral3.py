"""Ministral 3: HF's `get_image_features` bound to the model, called once in `forward` on padded pixels and image sizes."""

from skillgen.adapters.base import Adapter, Call, Example, Place
from skillgen.model import Outcome

ADAPTER = Adapter(
    family="ministral3",
    models=(Place("models/ministral3/modeling_ministral3.py", "Ministral3Model"),),
    calls=(Call("forward", "self.get_image_features"),),
    providers=(Place("models/ministral3/ministral3_provider.py", "Ministral3ModelProvider"),),
    unit="image",
    form="image-batch",
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
)
