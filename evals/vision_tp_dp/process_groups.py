"""Process groups of layouts, few of them: megatron-core makes a score per layout, most of the same ranks."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from skillgen.evals.kernel.context import Context
from skillgen.evals.vision_tp_dp.worlds import Layout


class Groups:
    """The groups of the layouts that were entered; `limit` is what a collective may take, in seconds."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._layouts: dict[Layout, tuple[dict[str, Any], Any]] = {}
        self._shared: dict[tuple[int, ...], Any] = {}

    def enter(self, layout: Layout) -> Any:
        """Put a layout's groups where megatron-core looks for them; its ProcessGroupCollection."""
        from megatron.core import parallel_state
        from megatron.core.process_groups_config import ProcessGroupCollection

        state = vars(parallel_state)
        if layout not in self._layouts:
            parallel_state.destroy_model_parallel()
            with self._sharing():
                parallel_state.initialize_model_parallel(
                    layout.tp,
                    context_parallel_size=layout.cp,
                    create_gloo_process_groups=False,
                    distributed_timeout_minutes=(self.limit + 5) / 60,
                )
            groups = {name: value for name, value in state.items() if name.startswith("_") and name.isupper()}
            self._layouts[layout] = groups, ProcessGroupCollection.use_mpu_process_groups()
        groups, collection = self._layouts[layout]
        state.update(groups)
        return collection

    @contextmanager
    def _sharing(self) -> Iterator[None]:
        """One group for the same ranks in the same order, over all layouts."""
        original = dist.new_group

        def new_group(ranks: Sequence[int] | None = None, *args: Any, **options: Any) -> Any:
            members = tuple(range(dist.get_world_size()) if ranks is None else ranks)
            if members not in self._shared:
                self._shared[members] = original(ranks, *args, **options)
            return self._shared[members]

        dist.new_group = new_group
        try:
            yield
        finally:
            dist.new_group = original


def of(context: Context) -> Groups:
    """The run's groups; where a rank raised and all were dropped, new ones, and the threads of the old ones end."""
    if "groups" not in context.kept:
        _destroy()
        context.kept["groups"] = Groups(context.limit)
    found: Groups = context.kept["groups"]
    return found


def _destroy() -> None:
    """Every group but the default one."""
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    groups = [group for group in distributed_c10d._world.pg_map if group is not dist.group.WORLD]
    for group in groups:
        dist.destroy_process_group(group)
    if groups:
        gc.collect()  # models, which refer to themselves, hold the last references
