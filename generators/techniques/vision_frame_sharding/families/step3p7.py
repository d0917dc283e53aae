"""Step3.7: equal images, and equal crops of them, through tower, strided convolutions and projector."""

from collections.abc import Mapping

from skillgen.kernel.model import AddImport, AddMethod, Edit, Outcome, ReplaceCallee, ReplaceExpression
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout

PROCESS = "Step3p7Model._process_image_input"
SUSPENDED = ("nemo_automodel.components.distributed.context_parallel.utils", ("cp_dispatcher_suspended",))
MEDIA = "get_multimodal_embeddings"


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Encode and project in one method; later releases encode in forward, where the ring dispatcher is active."""
    path = site.path
    found: list[Edit] = [
        AddMethod(path=path, cls="Step3p7Model", after="_process_image_features", code=code["encode"])
    ]
    for pixels in ("patch_pixel_values", "pixel_values"):
        old, new = f"self._process_image_features(self.vision_model({pixels}))", f"self._encode_images({pixels})"
        found.append(ReplaceExpression(path=path, scope=PROCESS, old=old, new=new))
    if site.in_forward:
        own, call, within = f"self._{MEDIA}", f"self.model.{MEDIA}", "if ( cp_size > 1"
        found += [
            AddImport(path=path, module=SUSPENDED[0], names=SUSPENDED[1]),
            AddMethod(path=path, cls=site.cls, after="prepare_model_inputs_for_cp", code=code["suspend"]),
            ReplaceCallee(path=path, function=f"{site.cls}.forward", call=call, callee=own, within=within),
        ]
    return found


ADAPTER = FrameAdapter(
    family="step3p7",
    path="components/models/step3p7/model.py",
    cls="Step3p7ForConditionalGeneration",
    docs="step-3-7",
    layouts=(
        Layout(
            calls=(Call(PROCESS, "self.vision_model"), Call(PROCESS, "self._process_image_features")),
            unit="image",
            form="tensor-batch",
            verified="0.5.0 to 0.7.0 and main at 36044ad3d",
            edits=edits,
        ),
    ),
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
class Step3p7Model:
    def _process_image_input(self, pixel_values):
        return self._process_image_features(self.vision_model(pixel_values))

class Step3p7ForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, input_ids, pixel_values):
        return {"inputs_embeds": self.merge(input_ids, self.model._process_image_input(pixel_values))}
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.5 0.6 0.7 main"},
)
