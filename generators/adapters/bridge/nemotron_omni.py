"""Nemotron Omni: `_encode_images` runs RADIO and the projector. Releases up to 0.6.2 hand the whole forward to megatron-core."""

from skillgen.adapters.base import Adapter, Call, Example, Place
from skillgen.model import Outcome

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
)
