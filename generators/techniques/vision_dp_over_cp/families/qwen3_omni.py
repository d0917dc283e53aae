"""Qwen3-Omni: two helpers call the tower and return rows and deepstack levels; `forward` calls each once."""

from collections.abc import Mapping

from skillgen.kernel.model import AddMethod, Edit, InsertAfter, Outcome, ReplaceCallee
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter, Site

RANK = "tp_rank = self.pg_collection.tp.rank() if self.pg_collection is not None else 0"


def edits(site: Site, code: Mapping[str, str]) -> list[Edit]:
    """Wrap both helpers where `forward` calls them."""
    path, init, forward = site.model_path, f"{site.cls}.__init__", f"{site.cls}.forward"
    return [
        InsertAfter(path=path, function=init, anchor="self.pg_collection = pg_collection", code=code["gate"]),
        AddMethod(path=path, cls=site.cls, after="get_video_features", code=code["shard"]),
        InsertAfter(path=path, function=forward, anchor=RANK, code=code["call"]),
        *(
            ReplaceCallee(path=path, function=forward, call=f"self.{name}", callee=name)
            for name in ("get_image_features", "get_video_features")
        ),
    ]


ADAPTER = Adapter(
    family="qwen3_omni",
    models=(Place("models/qwen_omni/modeling_qwen3_omni/thinker_model.py", "Qwen3OmniThinkerModel"),),
    calls=(
        Call("get_image_features", "self.visual"),
        Call("get_video_features", "self.visual"),
        Call("forward", "self.get_image_features"),
        Call("forward", "self.get_video_features"),
    ),
    providers=(Place("models/qwen_omni/qwen3_omni_provider.py", "Qwen3OmniModelProvider"),),
    unit="temporal-patch",
    form="grid-rows",
    tests="qwen_omni",
    docs="qwen3-omni",
    edits=edits,
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.utils import split_data_cp_rank

class Qwen3OmniThinkerModel:
    def get_image_features(self, pixel_values, grid):
        return self.visual(pixel_values, grid_thw=grid)
    def get_video_features(self, pixel_values, grid):
        return self.visual(pixel_values, grid_thw=grid)
    def forward(self, ids, pixels, grid, videos, video_grid, size, rank):
        rows, levels = self.get_image_features(pixels, grid)
        more, _ = self.get_video_features(videos, video_grid)
        return self.language_model(split_data_cp_rank(self.merge(ids, rows, more, levels), size, 0, rank))
""",
        ),
    ),
    seen={"applicable replicated-encoder": "0.5 0.6 main"},
)
