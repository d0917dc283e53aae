"""Nemotron Omni: equal tiles, and groups of video frames; images of dynamic resolution go through a loop."""

from collections.abc import Mapping

from skillgen.kernel.model import AddMethod, Edit, InsertBefore, Outcome, ReplaceCallee
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout

HOOK = "prepare_model_inputs_for_cp"
CALLS = {"tiles": "extract_feature", "video": "extract_video_feature"}


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Wrap the two helpers where they are called; the loop stays, since ranks would call the tower unequally."""
    path, function = site.path, f"{site.cls}.{site.layout.calls[0].function}"
    found: list[Edit] = [
        AddMethod(path=path, cls=site.cls, after="extract_video_feature", code=code["shard"]),
        InsertBefore(path=path, function=function, anchor="call:self.extract_feature_dynamic", code=code["dynamic"]),
    ]
    for section, name in CALLS.items():
        call = f"self.{name}"
        found += [
            InsertBefore(path=path, function=function, anchor=f"call:{call}", code=code[section]),
            ReplaceCallee(path=path, function=function, call=call, callee=name),
        ]
    return found


def layout(function: str, verified: str, *more: Call) -> Layout:
    """The form whose calls are in one of the class's methods."""
    calls = (*(Call(function, f"self.{name}") for name in (*CALLS.values(), "extract_feature_dynamic")), *more)
    patched = (Call(function, "self._shard_tiles"),)
    return Layout(calls=calls, patched=patched, unit="tile", form="tensor-batch", verified=verified, edits=edits)


# `forward` of 0.5.0 has the calls as well, but not under context parallelism
LATER = layout("forward", "0.6.0, 0.7.0 and main at 36044ad3d", Call("forward", "cp_dispatcher_suspended"))
ADAPTER = FrameAdapter(
    family="nemotron_omni",
    path="components/models/nemotron_omni/model.py",
    cls="NemotronOmniForConditionalGeneration",
    docs="nemotron-omni",
    layouts=(LATER, layout(HOOK, "0.5.0")),
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
class NemotronOmniForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, input_ids, pixel_values, sizes=None, videos=None):
        if sizes is not None:
            return self.merge(input_ids, self.extract_feature_dynamic(pixel_values, sizes))
        if videos is not None:
            return self.merge(input_ids, self.extract_video_feature(videos))
        return self.merge(input_ids, self.extract_feature(pixel_values))
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.5 0.6 0.7 main"},
)
