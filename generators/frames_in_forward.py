"""Configuration and recipes of Automodel releases that embed in forward: the same edits for each family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillgen.model import (
    AddContext,
    AddDefinition,
    AddImport,
    AddItem,
    Edit,
    InsertBefore,
    ReplaceExpression,
    ReplaceWords,
)

if TYPE_CHECKING:
    from skillgen.adapters.base import FrameSite

POLICY = "CpVisionFrameShardingConfig"
CONTEXT = "_cp_vision_frame_sharding_context"

SCOPE = '''\
def published_scope() -> _GroupScope | None:
    """Return the group and the policy that the recipe has published, or ``None`` outside of its forward."""
    return _CP_VISION_GROUP.get()
'''

PUBLISH = """\
if self.cp_vision_frame_sharding.mesh_dims != ("cp",):
    with vision_frame_sharding.publish(self.device_mesh, self.cp_vision_frame_sharding):
        yield
    return

"""


def shared_edits(site: FrameSite) -> list[Edit]:
    """What is published can be read, it may span CP x TP, and the distillation recipe publishes it too."""
    package = site.package
    return [
        *_scope(f"{package}/components/distributed/cp_vision_frame_shard.py"),
        *_recipes(f"{package}/recipes/vlm"),
        *_tests(site),
    ]


def _scope(path: str) -> list[Edit]:
    return [
        AddItem(path=path, name="__all__", code='"published_scope"', after='"maybe_distribute_visual"'),
        AddDefinition(path=path, before="cp_vision_frame_sharding_active", code=SCOPE),
        ReplaceExpression(
            path=path,
            scope=POLICY,
            old='tuple[Literal["cp"]]',
            new='tuple[Literal["cp"]] | tuple[Literal["cp", "tp"]]',
        ),
        ReplaceExpression(
            path=path,
            scope=POLICY,
            old='self.mesh_dims != ("cp",)',
            new='self.mesh_dims not in (("cp",), ("cp", "tp"))',
        ),
        ReplaceExpression(
            path=path,
            scope=POLICY,
            old="f'{config_path}.mesh_dims currently supports only [\"cp\"]'",
            new='f\'{config_path}.mesh_dims currently supports only ["cp"] and ["cp", "tp"]\'',
        ),
        ReplaceWords(
            path=path,
            scope=POLICY,
            old='Only ``("cp",)`` is currently supported.',
            new='``("cp",)``, or\n``("cp", "tp")`` for a frozen vision tower.',
        ),
    ]


def _recipes(folder: str) -> list[Edit]:
    finetune, kd = f"{folder}/finetune.py", f"{folder}/kd.py"
    distill = "KnowledgeDistillationRecipeForVLM"
    return [
        AddImport(path=finetune, module="nemo_automodel.components.distributed", names=("vision_frame_sharding",)),
        # distillation enters this context too now, also on a recipe that was built without its setup
        ReplaceExpression(
            path=finetune,
            scope=f"FinetuneRecipeForVLM.{CONTEXT}",
            old="self.device_mesh is None",
            new='self.device_mesh is None or not hasattr(self, "cp_vision_frame_sharding")',
        ),
        InsertBefore(
            path=finetune,
            function=f"FinetuneRecipeForVLM.{CONTEXT}",
            anchor="call:set_cp_vision_group",
            code=PUBLISH,
        ),
        # validation runs the same step; a teacher on a mesh of its own has its recipe's mesh and policy
        *(
            AddContext(path=kd, function=f"{distill}.{method}", call="train_ctx", code=f"self.{CONTEXT}()")
            for method in ("_forward_backward_step", "_teacher_forward_separate")
        ),
    ]


def _tests(site: FrameSite) -> list[Edit]:
    """The target's own test of what `mesh_dims` refuses, where it has one."""
    path, name = f"{site.tests_root}/unit_tests/recipes/test_dist_utils.py", "rejects_unsupported_mesh_dims"
    there = site.target.root / path
    if not site.tests_root or not there.is_file() or name not in there.read_text(encoding="utf-8", errors="replace"):
        return []
    scope = f"TestParsing.test_vision_frame_sharding_{name}"
    old, new = '[["cp", "tp"], ["tp"], []]', '[["tp", "cp"], ["tp"], []]'
    return [ReplaceExpression(path=path, scope=scope, old=old, new=new)]
