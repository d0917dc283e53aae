"""Import NeMo Automodel's own components, models and recipes on a CPU, and publish a policy as its recipes do."""

from __future__ import annotations

import importlib
import importlib.util
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from skillgen.evals.kernel.context import Context
from skillgen.evals.kernel.harness import TargetHarness
from skillgen.evals.kernel.inert import InertPackages

# Loggers, data loaders, GPU kernels, 8-bit layers: imported by recipes at module level, used by no case.
UNUSED = ("mlflow", "wandb", "triton", "torchao", "torchdata", "datasets", "PIL")
DISTRIBUTED = "components.distributed"
GLUE = f"{DISTRIBUTED}.vision_frame_sharding"
UPSTREAM = f"{DISTRIBUTED}.cp_vision_frame_shard"
ALWAYS = {"enabled": True, "min_tokens": 0, "min_frames": 0, "min_local_patch_rows": 0}  # shards every batch


class AutomodelHarness(TargetHarness):
    """NeMo Automodel; its package initialisers run."""

    package = "nemo_automodel"
    runtime_module = f"{DISTRIBUTED}.vision_sharding"
    technique = "vision-frame-sharding"
    versions = ("transformers", "torchao", "triton", "mlflow", "wandb")

    def load(self, module: str) -> types.ModuleType:
        """Import a module of the target by its name below the package; packages that are absent stand inert."""
        with InertPackages(*UNUSED) as inert:
            found = importlib.import_module(f"{self.package}.{module}")
        for name in inert.absent:
            self.stands_in(f"inert module: {name} (not installed, used by no case)")
        return found

    def before_tests(self) -> None:
        """Tests import what the recipes do; only the compiler must not be thought to be there."""
        InertPackages(*(name for name in UNUSED if name != "triton")).__enter__()

    @property
    def release(self) -> tuple[int, ...]:
        """Major and minor version."""
        info = self.load("package_info")
        return (info.MAJOR, info.MINOR)

    @property
    def in_forward(self) -> bool:
        """Whether the target embeds within forward, and brings its own policy (0.6.0 and later)."""
        return importlib.util.find_spec(f"{self.package}.{UPSTREAM}") is not None

    def glue(self) -> types.ModuleType:
        """What the patch adds beside the runtime; Skip if it is not there."""
        self.runtime()
        return self.load(GLUE)

    @contextmanager
    def published(self, mesh: Any, **options: Any) -> Iterator[None]:
        """The mesh's group and a policy are published by 0.5.0's glue, as the patched recipe does it."""
        glue = self.glue()
        config = glue.MultimodalConfig(glue.VisionConfig(glue.FrameShardingConfig(**{**ALWAYS, **options})))
        with glue.publish(mesh, types.SimpleNamespace(multimodal=config)):
            yield

    def group(self) -> Any:
        """The group that is published now, or None."""
        return getattr(self.glue().published_scope(), "group", None)


def cp_mesh(context: Context, cp: int, order: str = "blocks") -> Any:
    """A device mesh ("dp", "cp") over the run's ranks, around the context's own CP groups and their time limit."""
    from torch.distributed.device_mesh import DeviceMesh

    group = context.layout(cp, order).cp
    ranks = torch.arange(context.world).view(-1, cp)
    if order != "blocks":
        ranks = torch.arange(context.world).view(cp, -1).T
    across = context.new_groups(ranks.T.tolist())
    return DeviceMesh.from_group([across, group], context.device.type, mesh=ranks, mesh_dim_names=("dp", "cp"))
