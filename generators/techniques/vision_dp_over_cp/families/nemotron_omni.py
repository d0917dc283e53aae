"""Nemotron Omni: `_encode_images` runs RADIO and the projector. Releases to 0.6.2 leave it all to megatron-core."""

from collections.abc import Mapping

from skillgen.kernel.model import (
    AddDefinition,
    AddMethod,
    AddParameter,
    Edit,
    InsertAfter,
    InsertBefore,
    Outcome,
    PassKeyword,
    ReplaceCallee,
    ReplaceStatement,
)
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter, Site


def edits(site: Site, code: Mapping[str, str]) -> list[Edit]:
    """Pass the flag through the provider, pad odd grids, shard where `forward` encodes."""
    path, cls, init, forward = site.model_path, site.cls, f"{site.cls}.__init__", f"{site.cls}.forward"
    provide, keyword = f"{site.providers[0]}.provide", "vision_dp_over_cp=self.vision_dp_over_cp"
    cp_size = "self.context_parallel_lm = language_transformer_config.context_parallel_size"
    call, last = "self._encode_images", "temporal_ckpt_compat"
    return [
        PassKeyword(path=site.provider_path, function=provide, call=cls, code=keyword, after=last),
        AddParameter(path=path, function=init, code="vision_dp_over_cp: bool = False", after=last),
        InsertAfter(path=path, function=init, anchor=cp_size, code=code["gate"]),
        AddDefinition(path=path, before=cls, code=code["pad"]),
        ReplaceStatement(
            path=path,
            function=f"{cls}._encode_images",
            anchor="call:_pixel_shuffle_dynamic_resolution",
            code=code["shuffle"],
        ),
        AddMethod(path=path, cls=cls, after="_encode_images", code=code["shard"]),
        InsertBefore(path=path, function=forward, anchor=f"call:{call}", code=code["call"]),
        ReplaceCallee(path=path, function=forward, call=call, callee="encode_images"),
    ]


ADAPTER = Adapter(
    family="nemotron_omni",
    models=(Place("models/nemotron_omni/modeling_nemotron_omni.py", "NemotronOmniModel"),),
    calls=(
        Call("_encode_images", "self.vision_model"),
        Call("_encode_images", "self.vision_projection"),
        Call("forward", "self._encode_images"),
    ),
    providers=(Place("models/nemotron_omni/nemotron_omni_provider.py", "NemotronOmniModelProvider"),),
    unit="tubelet",
    form="packed-patches",
    default=True,
    splitters=("balanced", "mcore"),
    tests="nemotron_omni",
    docs="nemotron-3-omni",
    edits=edits,
    verified="main at 067f987df",
    examples=(
        Example(
            Outcome.APPLICABLE,
            "replicated-encoder",
            """
class NemotronOmniModel:
    def _encode_images(self, images, imgs_sizes, packed, num_frames):
        rows = self.vision_model(images, imgs_sizes=imgs_sizes, packed_seq_params=packed, num_frames=num_frames)
        return self.vision_projection(rows)
    def _context_parallel_index(self, total):
        return self.pg_collection.cp.rank() * total
    def forward(self, ids, images, imgs_sizes, packed, num_frames):
        merged = self.merge(ids, self._encode_images(images, imgs_sizes, packed, num_frames))
        return self.language_model(merged[self._context_parallel_index(len(merged))])
""",
        ),
    ),
    seen={"refused call-site-in-megatron-core": "0.5 0.6", "applicable replicated-encoder": "main"},
)
