"""Gradients of a patched model under Megatron's DistributedDataParallel on gloo, with and without sharding.

Usage: python megatron_ddp.py TARGET MCORE; prints one record per configuration: the largest relative difference.
"""

from __future__ import annotations

import itertools
import json
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from skillgen.evals.kernel.arms import apart_by_name, local_loss
from skillgen.evals.kernel.context import SEED, Context
from skillgen.evals.kernel.families import Family, Item
from skillgen.evals.kernel.harness import Harness
from skillgen.evals.vision_dp_over_cp import families
from tests.distributed import RankError, run_ranks

# Microbatches of each step. With one image a rank is idle; the DDP asserts from the second step on.
STEPS = (([Item(2, 3), Item(4, 2), Item(3, 3)],), ([Item(2, 2)],), ([Item(2, 3)], [Item(2, 3), Item(4, 2)]))


def gradients(context: Context, family: Family, flag: bool, **options: Any) -> dict[str, Any]:
    """Reduced gradients by step and name; a step's last microbatch reduces."""
    import torch
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.current_stream = lambda *_: types.SimpleNamespace(wait_stream=lambda _: None)
    layout = context.layout(2)
    model = context.model(family, layout, flag=flag)
    whole = dict.fromkeys(("dp_cp", "intra_dp_cp", "cp"), layout.cp)
    alone = dict.fromkeys(("dp", "intra_dp", "expt_dp", "intra_expt_dp", "tp", "pp", "ep"), layout.tp)
    config = DistributedDataParallelConfig(bucket_size=2000, grad_reduce_in_fp32=True, **options)
    groups = types.SimpleNamespace(**whole, **alone)
    plain = TransformerConfig(num_layers=1, hidden_size=64, num_attention_heads=4)
    ddp = DistributedDataParallel(plain, config, model, pg_collection=groups)
    found = {}
    for number, microbatches in enumerate(STEPS):
        ddp.zero_grad_buffer()
        for turn, items in enumerate(microbatches, 1):
            batch = family.batch(items, SEED)
            with nullcontext() if turn == len(microbatches) else ddp.no_sync():
                local_loss(family, model, dict(batch.inputs), batch, layout).backward()
        ddp.finish_grad_sync()
        named = model.named_parameters()
        found |= {f"{number} {name}": p.main_grad.clone() for name, p in named if p.requires_grad}
    return found


def main(target: str, mcore: str) -> list[dict[str, Any]]:
    harness = Harness(target, mcore)
    family_class = families.load("ministral3")
    family = family_class(harness)
    import megatron.core.distributed  # noqa: F401  # once, not in every rank

    def on_rank(rank: int, options: dict[str, bool]) -> float:
        context = Context(harness, {"backend": "gloo", "limit": 20})
        replicated, sharded = (gradients(context, family, flag, **options) for flag in (False, True))
        assert any(bool(grad.any()) for grad in replicated.values())
        return apart_by_name(sharded, replicated)

    records = []
    for overlap, average in itertools.product((True, False), repeat=2):
        options = {"overlap_grad_reduce": overlap, "average_in_collective": average}
        record: dict[str, Any] = {**options}
        try:
            record["difference"] = max(run_ranks(2, on_rank, options))
        except RankError as error:
            record["error"] = str(error)[-500:]
        records.append(record)
    return records


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
