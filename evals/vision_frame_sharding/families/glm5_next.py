"""GLM-5.3: packed pixel rows with grids, images only; the tower merges and projects."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from skillgen.evals.vision_frame_sharding.towers import HIDDEN, IMAGE_ID, GridTower, Words, bare, config


class Glm5Next(GridTower):
    name = "glm5_next"
    videos = ("", "")

    def build(self, *, large: bool = False) -> nn.Module:
        from nemo_automodel.components.models.glm5_next.config import Glm5NextVisionConfig

        width, depth = (128, 4) if large else (32, 2)
        vision = Glm5NextVisionConfig(
            depth=depth,
            hidden_size=width,
            num_heads=2,
            intermediate_size=2 * width,
            out_hidden_size=HIDDEN,
            projection_intermediate_size=48,
            patch_size=self.patch,
            temporal_patch_size=self.temporal,
            spatial_merge_size=self.merge,
            dtype="float32",
        )
        inner = bare(self.code.Glm5NextModel, visual=self.code.Glm5NextVisionModel(vision), language_model=Words())
        whole = self.code.Glm5NextForConditionalGeneration
        return bare(whole, model=inner, config=config(image_token_id=IMAGE_ID, vision_config=vision))

    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        return [model._embed_and_splice(**inputs)[0]]

    def tower(self, model: Any) -> nn.Module:
        return model.model.visual


FAMILY = Glm5Next
