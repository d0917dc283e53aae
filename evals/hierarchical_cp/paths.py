"""The two ways that a target makes its groups, and what each rank got from them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from skillgen.evals.kernel.context import Context
from skillgen.evals.kernel.harness import Harness, Skip
from skillgen.evals.kernel.stand_in import DotProductAttention
from skillgen.evals.kernel.surroundings import bridge_module, recorded_extension
from skillgen.evals.kernel.tables import Shape, cp_ranks

CORE = "megatron.core"
TYPE = "a2a+p2p"


class BridgeHarness(Harness):
    """A patched Megatron-Bridge, on the megatron-core that stands beside it."""

    technique = "hierarchical-cp"


class CoreHarness(Harness):
    """A patched megatron-core alone."""

    package = CORE
    technique = "hierarchical-cp"

    def shells(self, *packages: str) -> None:
        """Its initialisers want nothing that is absent here."""


@dataclass(frozen=True)
class Made:
    """What a way gave this rank: the collection to build a model with (None: the globals), and the two levels."""

    collection: Any
    cp: list[int] | None
    hcp: list[list[int]] | None


class Paths:
    """The target's process groups, made and destroyed; the layers that are built on them."""

    def __init__(self, harness: Harness, backend: str) -> None:
        self.harness, self.backend = harness, backend
        self.device = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")
        self.is_bridge = isinstance(harness, BridgeHarness)
        self._made: list[dist.ProcessGroup] = []
        self._attention: type | None = None
        self.after: Callable[[str, Any], Any] = lambda name, collection: collection  # a mutation's place
        if self.is_bridge:
            self.initialize = bridge_module(harness, "training.initialize")

    @property
    def names(self) -> tuple[str, ...]:
        return ("MPU", "decentralized") if self.is_bridge else ("MPU", "collection")

    def make(self, name: str, shape: Shape, *, on: bool = True, first: bool = True) -> Made:
        """Groups of a shape, `on` with the hierarchy, `first` as in a process that had none before."""
        if first:
            self.state()._HIERARCHICAL_CONTEXT_PARALLEL_GROUPS = None
        with self._recorded():
            collection = {"MPU": self._mpu, "decentralized": self._decentralized, "collection": self._collection}[
                name
            ](shape, on)
        collection = self.after(name, collection)
        found = self.state().get_hierarchical_context_parallel_groups(check_initialized=False)
        groups = found if name == "MPU" else collection.hcp
        cp = self.state().get_context_parallel_group(check_initialized=False) if name == "MPU" else collection.cp
        return Made(collection, ranks_of(cp), [ranks_of(group) or [] for group in groups] if groups else None)

    def make_offset(self, shape: Shape) -> Made:
        """The decentralized groups of a grid that starts behind other ranks."""
        with self._recorded():
            made = self.initialize._create_pg_collection(
                config_of(shape), 1, world_size=shape.world, rank_offset=shape.offset
            )
        made = self.after("decentralized", made)
        return Made(made, ranks_of(made.cp), [ranks_of(group) or [] for group in made.hcp] if made.hcp else None)

    def destroy(self) -> None:
        """As the target ends a run, and may start another in the same process."""
        if self.is_bridge:
            self.initialize.destroy_global_state()
        else:
            self.state().destroy_model_parallel()
        if sys.exc_info()[0] is None:  # after an error, peers may still be in these groups
            dist.barrier()
            for group in self._made:
                with contextlib.suppress(ValueError, AssertionError):  # the target may have destroyed it
                    dist.destroy_process_group(group)
        self._made.clear()

    def stale(self) -> Any:
        """The global that layers read."""
        return self.state().get_hierarchical_context_parallel_groups(check_initialized=False)

    def is_fresh(self, group: Any) -> bool:
        """Whether a group is of the last `make`."""
        return any(group is made for made in self._made)

    def state(self) -> Any:
        """megatron-core's parallel_state."""
        from megatron.core import parallel_state

        return parallel_state

    def attention(self) -> type:
        """megatron-core's TEDotProductAttention: on Transformer Engine where it can compute, else on a stand-in."""
        if self._attention is None:
            if self.backend == "nccl" and _has_engine():
                from megatron.core.extensions.transformer_engine import TEDotProductAttention

                self._attention = TEDotProductAttention
            else:
                self._attention = recorded_extension(self.harness).TEDotProductAttention
        return self._attention

    def rebinding(self) -> Any:
        """Bridge's module that moves a model to other groups, where there is one."""
        name = "training.eval_context_parallel_rebinding"
        source = self.harness.source
        if not self.is_bridge or source is None:
            return None
        there = (source / "megatron" / "bridge" / f"{name.replace('.', '/')}.py").is_file()
        return bridge_module(self.harness, name) if there else None

    @contextmanager
    def seen_attention(self) -> Iterator[None]:
        """Who asks megatron-core for the class of the layers' attention hears of the one that they are built with."""
        module = importlib.import_module("megatron.core.extensions.transformer_engine")
        before = module.TEDotProductAttention
        module.TEDotProductAttention = self.attention()  # type: ignore[attr-defined]
        try:
            yield
        finally:
            module.TEDotProductAttention = before  # type: ignore[attr-defined]

    @property
    def exact(self) -> bool:
        """Whether our reference computes, in fp64; Transformer Engine wants half precision."""
        return issubclass(self.attention(), DotProductAttention)

    def replace_attention(self, kind: type) -> None:
        """Models are built with another class from now on."""
        self._attention = kind

    def _mpu(self, shape: Shape, on: bool) -> Any:
        """Through Bridge's own call of megatron-core where there is a Bridge."""
        if self.is_bridge:
            return self._initialize(shape, on, decentralized=False)
        self.state().initialize_model_parallel(
            tensor_model_parallel_size=shape.tp,
            pipeline_model_parallel_size=shape.pp,
            context_parallel_size=shape.cp,
            hierarchical_context_parallel_sizes=shape.sizes if on else None,
            create_gloo_process_groups=False,
        )
        return None

    def _decentralized(self, shape: Shape, on: bool) -> Any:
        return self._initialize(shape, on, decentralized=True)

    def _initialize(self, shape: Shape, on: bool, *, decentralized: bool) -> Any:
        options = dict.fromkeys(("use_tp_pp_dp_mapping", "use_gloo_process_groups", "use_sharp"), False)
        settings = SimpleNamespace(
            use_decentralized_pg=decentralized,
            distributed_backend=self.backend,
            distributed_timeout_minutes=1,
            nccl_communicator_config_path=None,
            high_priority_stream_groups=None,
            sharp_enabled_group=None,
            **options,
        )
        with self._quiet(), _seen_gpus(self.backend):
            try:
                return self.initialize._initialize_distributed(config_of(shape, on=on), settings, 1, None, None)
            except NotImplementedError as error:
                raise Skip(f"the target refuses this: {error}") from error

    def _collection(self, shape: Shape, on: bool) -> Any:
        """A collection as a caller without the globals makes it: megatron-core's own function, enumerated lists."""
        from megatron.core.process_groups_config import ProcessGroupCollection

        rank, mine, levels = dist.get_rank(), None, None
        for ranks in cp_ranks(shape):
            group = dist.new_group(ranks)
            inner = self.state().create_hierarchical_groups(rank, ranks, shape.sizes, group_desc="CP")[0]
            if rank in ranks:
                mine, levels = group, inner
        alone = [dist.new_group([other]) for other in range(dist.get_world_size())][rank]
        empty = dict.fromkeys(field.name for field in fields(ProcessGroupCollection))
        return ProcessGroupCollection(**{**empty, "tp": alone, "pp": alone, "cp": mine, "hcp": levels if on else None})

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Keep the groups that are made, and let them be of the run's backend where the target says nccl."""
        original = distributed_c10d.new_group

        def new_group(*args: Any, **kwargs: Any) -> Any:
            if self.backend != "nccl" and kwargs.get("backend") == "nccl":
                kwargs["backend"] = None
                self.harness.stands_in("gloo where the target asks for nccl groups")
            group = original(*args, **kwargs)
            if isinstance(group, dist.ProcessGroup):
                self._made.append(group)
            return group

        distributed_c10d.new_group = torch.distributed.new_group = new_group
        try:
            yield
        finally:
            distributed_c10d.new_group = torch.distributed.new_group = original

    @staticmethod
    @contextmanager
    def _quiet() -> Iterator[None]:
        with contextlib.redirect_stdout(None):
            yield


def config_of(shape: Shape, *, on: bool = True, **changes: Any) -> Any:
    """A real, tiny TransformerConfig of a shape."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    options: dict[str, Any] = {
        "num_layers": 2 * shape.pp,
        "hidden_size": 32,
        "num_attention_heads": 8,
        "num_query_groups": 4,
        "tensor_model_parallel_size": shape.tp,
        "pipeline_model_parallel_size": shape.pp,
        "context_parallel_size": shape.cp,
        "hierarchical_context_parallel_sizes": shape.sizes if on else None,
        "cp_comm_type": TYPE if on else "p2p",
        "params_dtype": torch.float64,
        "pipeline_dtype": torch.float64,
        "use_cpu_initialization": True,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "attention_softmax_in_fp32": False,
    }
    return TransformerConfig(**{**options, **changes})


def ranks_of(group: Any) -> list[int] | None:
    """The members of a group that this rank belongs to; None outside of it, and of one that was destroyed."""
    known = isinstance(group, dist.ProcessGroup) and group in distributed_c10d._world.pg_group_ranks
    return dist.get_process_group_ranks(group) if known else None


def _has_engine() -> bool:
    return importlib.util.find_spec("transformer_engine") is not None


@contextmanager
def _seen_gpus(backend: str) -> Iterator[None]:
    """Bridge refuses decentralized groups where it counts no GPU; groups on gloo need none."""
    original = torch.cuda.device_count
    if backend != "nccl":
        torch.cuda.device_count = lambda: 1
    try:
        yield
    finally:
        torch.cuda.device_count = original


def paths_of(context: Context) -> Paths:
    """The one Paths of a run."""
    found: Paths | None = getattr(context.harness, "paths", None)
    if found is None:
        found = context.harness.paths = Paths(context.harness, context.options["backend"])
    return found
