"""Qwen3.5: packed pixel rows with grids, images and videos encoded together and spliced in turn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from skillgen.evals.vision_frame_sharding.towers import HIDDEN, IMAGE_ID, VIDEO_ID, VOCAB, GridTower, Words, bare


class Qwen35(GridTower):
    name = "qwen3_5"
    stem = "Qwen3_5"
    wired = True
    merged = True

    def build(self, *, large: bool = False) -> nn.Module:
        import transformers

        modeling = getattr(transformers.models, self.name)
        vision = self.qwen_sizes(large)
        text = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "vocab_size": VOCAB, "num_attention_heads": 2}
        whole = getattr(transformers, f"{self.stem}Config")(
            vision_config=vision, text_config=text, image_token_id=IMAGE_ID, video_token_id=VIDEO_ID
        )
        whole.vision_config._attn_implementation = "sdpa"
        visual = getattr(modeling, f"{self.stem}VisionModel")._from_config(whole.vision_config)
        inner = bare(getattr(self.code, f"{self.stem}Model"), visual=visual, language_model=Words(), config=whole)
        cls = getattr(self.code, f"{self.stem}ForConditionalGeneration")
        return bare(cls, model=inner, config=whole, cp_mesh=None)

    def features(self, model: Any, inputs: dict[str, Any]) -> list[Tensor]:
        media, ids = dict(inputs), inputs["input_ids"]
        if hasattr(model, "_embed_and_splice_for_cp"):
            return [model._embed_and_splice_for_cp(media.pop("input_ids"), **media)[0]]
        return [model.prepare_model_inputs_for_cp(position_ids=ids, **media)["inputs_embeds"][0]]  # 0.5.0

    def upstream(self, model: Any, inputs: dict[str, Any], distribute: Any) -> list[Tensor]:
        names = ("pixel_values", "image_grid_thw"), ("pixel_values_videos", "video_grid_thw")
        calls = [(inputs[a], inputs[b]) for a, b in names if inputs[a] is not None]
        return [torch.cat([distribute(model.model.visual, *call).pooler_output for call in calls])]

    def tower(self, model: Any) -> nn.Module:
        return model.model.visual


FAMILY = Qwen35
