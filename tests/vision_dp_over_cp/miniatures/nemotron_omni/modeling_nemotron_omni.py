"""A miniature of the canonical Nemotron Omni, written from its interface: the shapes are real, the layers are toys."""

from types import SimpleNamespace

import torch
from megatron.bridge.models.logit_dtype import logit_dtype_kwarg

PackedSeqParams = SimpleNamespace


def _pixel_shuffle_dynamic_resolution(features: torch.Tensor, *, height: int, width: int) -> torch.Tensor:
    if height % 2 or width % 2:
        raise ValueError(f"Pixel shuffle requires an even patch grid, got {height}x{width}")
    grid = features.reshape(1, height // 2, 2, width // 2, 2, -1)
    return grid.permute(0, 1, 3, 2, 4, 5).reshape(1, height * width // 4, -1)


class VisionModel(torch.nn.Module):
    """Embeds images and tubelets each with their own layer, attends within each, puts class tokens in front."""

    add_class_token, class_token_len = True, 2

    def __init__(self, patch_dim: int, hidden: int, temporal_patch_dim: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=hidden, ffn_hidden_size=2 * hidden)
        self.patch_dim, self.temporal_patch_dim = patch_dim, temporal_patch_dim
        self.embedder = torch.nn.Linear(3 * patch_dim**2, hidden)
        self.video_embedder = torch.nn.Linear(3 * patch_dim**2 * temporal_patch_dim, hidden)
        self.class_token = torch.nn.Parameter(torch.ones(self.class_token_len, hidden))

    def forward(self, images, imgs_sizes, packed_seq_params, num_frames):
        """Encode packed patches [1, sum(patches), 3*P*P]; one size per frame, one count per image or video."""
        lengths = [h * w // self.patch_dim**2 for h, w in imgs_sizes.tolist()]
        frames = iter(zip(images[0].split(lengths), imgs_sizes))
        out, sizes, counts, steps = [], [], [], self.temporal_patch_dim
        for count in [1] * len(lengths) if num_frames is None else num_frames.tolist():
            group = [next(frames) for _ in range(count)]
            for first in range(0, count, steps if count > 1 else 1):
                chunk = [group[min(first + step, count - 1)][0] for step in range(steps)]
                rows = self.embedder(group[0][0]) if count == 1 else self.video_embedder(torch.cat(chunk, dim=1))
                out.append(torch.cat([self.class_token, torch.softmax(rows @ rows.T, dim=-1) @ rows]))
                sizes.append(group[0][1])
            counts.append(-(-count // steps))
        encoded = torch.cat(out).unsqueeze(0)
        return (encoded, torch.stack(sizes), counts) if steps > 1 else encoded


class NemotronOmniModel(torch.nn.Module):
    """Inserts media into the expanded sequence and hands each context-parallel rank its shard."""

    def __init__(
        self,
        *,
        language_transformer_config,
        hidden: int = 8,
        patch_dim: int = 2,
        temporal_patch_dim: int = 1,
        temporal_ckpt_compat: bool = False,
        sound_model: torch.nn.Module | None = None,
        pg_collection=None,
    ) -> None:
        super().__init__()
        self.patch_dim = patch_dim
        self.context_parallel_lm = language_transformer_config.context_parallel_size
        self.pg_collection = pg_collection
        self.language_model = None
        self.vision_model = VisionModel(patch_dim, hidden, temporal_patch_dim)
        self.vision_projection = torch.nn.Linear(4 * hidden, hidden)
        self.logits = logit_dtype_kwarg

    def _encode_images(
        self,
        images: torch.Tensor,
        imgs_sizes: torch.Tensor | None,
        vision_packed_seq_params: PackedSeqParams | None,
        num_frames: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return one projected row per image token."""

        use_temporal = self.vision_model.temporal_patch_dim > 1
        vision_output = self.vision_model(
            images, imgs_sizes=imgs_sizes, packed_seq_params=vision_packed_seq_params, num_frames=num_frames
        )
        if use_temporal:
            encoded, imgs_sizes, _ = vision_output
        else:
            encoded = vision_output
        sizes = [(int(height), int(width)) for height, width in imgs_sizes.tolist()]
        class_tokens = self.vision_model.class_token_len
        counts = [(height // self.patch_dim) * (width // self.patch_dim) + class_tokens for height, width in sizes]
        chunks = [chunk[class_tokens:] for chunk in torch.split(encoded.squeeze(0), counts)]
        shuffled = [
            _pixel_shuffle_dynamic_resolution(
                chunk.unsqueeze(0),
                height=height // self.patch_dim,
                width=width // self.patch_dim,
            ).squeeze(0)
            for chunk, (height, width) in zip(chunks, sizes)
        ]
        return self.vision_projection(torch.cat(shuffled, dim=0))

    def _context_parallel_index(self, total: int) -> torch.Tensor:
        return torch.arange(self.pg_collection.cp.rank(), total, self.context_parallel_lm)

    def forward(self, images, imgs_sizes=None, vision_packed_seq_params=None, num_frames=None):
        """Encode, then keep this rank's shard of the rows."""

        rows = None
        if images is not None:
            rows = self._encode_images(
                images,
                imgs_sizes,
                vision_packed_seq_params,
                num_frames,
            )
        return rows[self._context_parallel_index(len(rows))]
