"""Step 3.7: `_encode_images_for_insert` encodes a list of image batches; the CP group is kept but never used."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="stepfun",
    models=(Place("models/stepfun/modelling_step37/model.py", "Step37Model"),),
    calls=(
        Call("_encode_images_for_insert", "self.vision_model"),
        Call("forward", "self._encode_images_for_insert"),
    ),
    providers=(Place("models/stepfun/step37_provider.py", "Step37ModelProvider"),),
    unit="image",
    form="image-list",
    examples=(
        Example(
            Outcome.REFUSED,
            "no-context-parallel",
            """
class Step37Model:
    def _encode_images_for_insert(self, images):
        return [self.vision_model(pixels) for pixels in images]
    def forward(self, ids, images):
        return self.language_model(self.merge(ids, self._encode_images_for_insert(images)))
""",
        ),
    ),
    seen={"refused no-context-parallel": "0.5 0.6 main"},
)
