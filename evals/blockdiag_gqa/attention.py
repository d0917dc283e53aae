"""The attention modules of Automodel that fall back to dense attention, found by the name of their family."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from skillgen.evals.kernel.automodel import AutomodelHarness
from skillgen.evals.kernel.context import SEED
from skillgen.evals.kernel.families import settle_weights
from skillgen.evals.kernel.harness import Skip

HIDDEN, WIDTH, QUERIES = 32, 8, 4
BLOCKDIAG = "components.distributed.blockdiag_cp"
CLASSES = {"qwen3_5_moe": ("components.models.qwen3_5_moe.model", "_Qwen3_5MoeAttention")}


@dataclass(frozen=True)
class Packed:
    """A pack of documents: inputs and the loss's weights [1, S, hidden], rotary tables [1, S, width], lengths."""

    inputs: Tensor
    weights: Tensor
    tables: Tensor
    lengths: tuple[int, ...]

    def documents(self) -> list[slice]:
        ends = torch.tensor(self.lengths).cumsum(0).tolist()
        return [slice(end - length, end) for end, length in zip(ends, self.lengths, strict=True)]


class Attention:
    """One family's attention: the real module with tiny sizes, and the target's own context around it."""

    name: str
    variants: tuple[str, ...] = ("",)

    def __init__(self, harness: AutomodelHarness, variant: str = "") -> None:
        self.harness = harness
        module, self._cls = CLASSES[self.name]
        self.code = harness.load(module)
        self.blockdiag = harness.load(BLOCKDIAG)

    def require(self) -> None:
        """The class has to be there."""
        if not hasattr(self.code, self._cls):
            raise Skip(f"the target has no {self._cls}")

    def build(self, heads: int, dtype: torch.dtype) -> nn.Module:
        """The module with so many key and value heads, and the run's weights."""
        backend = self.harness.load("components.models.common").BackendConfig(
            attn="sdpa", linear="torch", rms_norm="torch", rope_fusion=False
        )
        config = SimpleNamespace(
            num_attention_heads=QUERIES,
            num_key_value_heads=heads,
            head_dim=WIDTH,
            hidden_size=HIDDEN,
            rms_norm_eps=1e-6,
            torch_dtype=torch.float32,
        )
        module: nn.Module = getattr(self.code, self._cls)(config, 0, backend)
        settle_weights(module, SEED)
        return module.to(dtype)

    def repeated(self, module: nn.Module, heads: int) -> nn.Module:
        """The same attention whose key and value heads were repeated beforehand, as weights."""
        dtype = next(module.parameters()).dtype
        other = self.build(QUERIES, dtype)
        weights = module.state_dict()
        for name in ("k_proj.weight", "v_proj.weight"):
            rows = weights[name].view(heads, WIDTH, HIDDEN)
            weights[name] = rows.repeat_interleave(QUERIES // heads, 0).reshape(-1, HIDDEN)
        other.load_state_dict(weights)
        return other

    def packed(self, cp: int, dtype: torch.dtype) -> Packed:
        """Three documents, of which the second lies across ranks, and a padded tail."""
        length = 16 * cp
        lengths = (5, length - 12, 4)
        generator = torch.Generator().manual_seed(SEED)
        inputs, weights = (torch.randn(1, length, HIDDEN, generator=generator) for _ in range(2))
        weights[:, sum(lengths) :] = 0  # no loss on padding
        places = torch.cat([torch.arange(n) for n in (*lengths, length - sum(lengths))])
        angles = places[:, None] * 10.0 ** -torch.arange(WIDTH // 2)
        tables = torch.cat([angles.cos(), angles.sin()], -1)[None]
        return Packed(inputs.to(dtype), weights.to(dtype), tables.to(dtype), lengths)

    @contextmanager
    def sharded(self, mesh: Any, packed: Packed) -> Iterator[slice]:
        """The target's own context for a packed batch; gives the rows of the sequence that this rank holds."""
        length = packed.inputs.shape[1]
        ids = torch.cat([torch.full((n,), i + 1) for i, n in enumerate(packed.lengths)])
        ids = torch.cat([ids, ids.new_zeros(length - len(ids))])[None]
        tokens = torch.arange(length)[None]
        batch = {"input_ids": tokens, "labels": tokens.clone(), "position_ids": tokens.clone(), "_packed_seq_ids": ids}
        enter, local, _ = self.blockdiag.make_cp_blockdiag_batch_and_ctx(mesh, None, batch)
        rows = int(local["labels"].shape[1])
        start = mesh.get_local_rank() * rows
        with enter():
            yield slice(start, start + rows)


def load(name: str) -> type[Attention]:
    """The class for a family."""
    return type(name, (Attention,), {"name": name})


def names() -> list[str]:
    """Families that have an eval."""
    return sorted(CLASSES)
