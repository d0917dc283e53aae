"""What a case sees of the run: ranks, groups, options; and how one case's results come together."""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from skillgen.evals.kernel.families import Family, Layout, settle_weights
from skillgen.evals.kernel.harness import Skip

SEED = 1234
NOT_FINITE = 1e308  # in the place of NaN and infinity, which JSON does not have


@dataclass
class Result:
    """One rank's part of a case: `checks` are (value, limit), the worst rank counts; `numbers` are kept per rank."""

    checks: dict[str, tuple[float, float]] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One thing to show. `run` is called on every rank and returns that rank's part."""

    kind: str
    name: str
    run: Callable[[], Result]


class Context:
    """One rank of an eval run."""

    def __init__(self, harness: Any, options: dict[str, Any]) -> None:
        self.harness = harness
        self.options = options
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = (
            torch.device("cuda", torch.cuda.current_device()) if options["backend"] == "nccl" else torch.device("cpu")
        )
        self.store = dist.distributed_c10d._get_default_store()
        self.hook_model: Callable[[Family, nn.Module, Layout], None] = lambda *_: None
        self.kept: dict[Any, Any] = {}  # what cases make of groups and use again; every gloo group has threads
        self._layouts: dict[tuple[int, str], Layout] = {}
        self._exchanged = 0

    @property
    def limit(self) -> float:
        """Seconds within which every rank must have raised; a collective that nobody joins gives up a little later."""
        return self.options["limit"]

    def cp_sizes(self) -> list[int]:
        """2, 4 and 8, as far as the ranks go."""
        return [size for size in (2, 4, 8) if size <= self.world and self.world % size == 0]

    def layout(self, cp: int, order: str = "blocks") -> Layout:
        """This rank's groups: CP groups of neighbours ("blocks") or of every n-th rank ("strided", as in TP x CP)."""
        key = (cp, order)
        if key not in self._layouts:
            group = self.new_groups(member_lists(self.world, cp, order))
            alone = self.new_groups([[rank] for rank in range(self.world)])
            self._layouts[key] = Layout(cp=group, tp=alone, cp_size=cp)
        return self._layouts[key]

    def new_groups(self, members: list[list[int]]) -> dist.ProcessGroup:
        """Create all groups on all ranks; return this rank's."""
        mine = None
        for ranks in members:
            group = dist.new_group(ranks, timeout=timedelta(seconds=self.limit + 5))
            mine = group if self.rank in ranks else mine
        assert mine is not None
        return mine

    def any(self, value: bool) -> bool:
        """Whether it is so on any rank."""
        flag = torch.tensor([float(value)], device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)

    def replica(self, layout: Layout) -> int:
        """A number that differs between CP groups, so that each works on a batch of its own."""
        return min(dist.get_process_group_ranks(layout.cp))

    def model(self, family: Family, layout: Layout, *, flag: bool, large: bool = False) -> nn.Module:
        """A fresh model with the run's weights, the same in both arms and on all ranks."""
        model = family.build(layout, flag, large=large)
        settle_weights(model, SEED)
        model.to(self.device).train()
        if flag:
            self.hook_model(family, model, layout)
        return model

    def run(self, case: Case) -> dict[str, Any]:
        """Run one case on all ranks and judge it; every rank returns the same row."""
        started = time.perf_counter()
        mine: dict[str, Any] = {}
        try:
            result = case.run()
            mine = {"checks": result.checks, "numbers": result.numbers}
        except Skip as skip:
            mine = {"skipped": str(skip)}
        except Exception as error:  # a rank that fails a case must still meet the others after it
            mine = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc(limit=-6)}
        row = judge(case, self.exchange(mine), time.perf_counter() - started)
        if "traceback" in row:
            self._layouts.clear()  # ranks may have left a collective halfway; new groups start afresh
            self.kept.clear()
        return row

    def exchange(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        """Every rank's dict, through the store: works when collectives no longer do."""
        self._exchanged += 1
        self.store.set(f"case{self._exchanged}/{self.rank}", json.dumps(mine))
        keys = [f"case{self._exchanged}/{rank}" for rank in range(self.world)]
        self.store.wait(keys, timedelta(seconds=3 * self.limit + 60))
        return [json.loads(self.store.get(key)) for key in keys]


def member_lists(world: int, size: int, order: str) -> list[list[int]]:
    """Groups of `size` neighbours, or of ranks `world / size` apart."""
    if order == "blocks":
        return [list(range(start, start + size)) for start in range(0, world, size)]
    return [list(range(start, world, world // size)) for start in range(world // size)]


def judge(case: Case, parts: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """One row of the report from all ranks' parts."""
    row: dict[str, Any] = {"kind": case.kind, "name": case.name, "seconds": round(seconds, 3)}
    skipped = next((part["skipped"] for part in parts if "skipped" in part), None)
    errors = {rank: part["error"] for rank, part in enumerate(parts) if "error" in part}
    if errors:
        trace = next(part["traceback"] for part in parts if "traceback" in part)
        reason = "; ".join(f"rank {rank}: {text}" for rank, text in errors.items())
        return row | {"status": "failed", "reason": reason, "traceback": trace}
    if skipped:
        return row | {"status": "skipped", "reason": skipped}
    worst: dict[str, tuple[float, float]] = {}
    for part in parts:
        for name, (value, limit) in part["checks"].items():
            finite = value if math.isfinite(value) else NOT_FINITE
            if name not in worst or finite > worst[name][0]:
                worst[name] = (finite, limit)
    failed = [
        f"{name} is {value:.3g}, limit {limit:.3g}" for name, (value, limit) in worst.items() if not value <= limit
    ]
    numbers = {name: [part["numbers"].get(name) for part in parts] for name in parts[0]["numbers"]}
    row |= {"checks": worst, "numbers": numbers}
    return row | ({"status": "failed", "reason": "; ".join(failed)} if failed else {"status": "passed", "reason": ""})
