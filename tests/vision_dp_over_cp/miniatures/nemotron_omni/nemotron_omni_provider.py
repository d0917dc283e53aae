"""The provider of the miniature."""

from dataclasses import dataclass

from megatron.bridge.models.nemotron_omni.modeling_nemotron_omni import NemotronOmniModel


@dataclass
class NemotronOmniModelProvider:
    """Configuration and construction."""

    context_parallel_size: int = 1
    temporal_patch_dim: int = 1

    temporal_ckpt_compat: bool = False

    def provide(self, pg_collection=None):
        """Build the model."""
        return NemotronOmniModel(
            language_transformer_config=self,
            temporal_patch_dim=self.temporal_patch_dim,
            temporal_ckpt_compat=self.temporal_ckpt_compat,
            sound_model=None,
            pg_collection=pg_collection,
        )
