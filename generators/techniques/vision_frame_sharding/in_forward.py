"""Configuration and recipes of Automodel releases that embed in forward: the same edits for each family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillgen.kernel.model import (
    AddContext,
    AddDefinition,
    AddImport,
    AddItem,
    Edit,
    InsertBefore,
    ReplaceExpression,
    ReplaceText,
    ReplaceWords,
)
from skillgen.techniques.shared.pages import stands_in

if TYPE_CHECKING:
    from skillgen.techniques.vision_frame_sharding.adapter import FrameSite

POLICY = "CpVisionFrameShardingConfig"
CONTEXT = "_cp_vision_frame_sharding_context"

SCOPE = '''\
def published_scope() -> _GroupScope | None:
    """Return the group and the policy that the recipe has published, or ``None`` outside of its forward."""
    return _CP_VISION_GROUP.get()
'''

GUIDE = "docs/guides/cp-vision-frame-sharding.mdx"
PASSAGES = {  # lines of the guide, `...` for those between
    "families": "| Qwen3-VL-MoE | Not yet supported |",
    "mesh-dims": "| `mesh_dims` | `[cp]` | Selects the device-mesh dimensions used to distribute frames. "
    "Only `[cp]` is currently supported. |",
    "plan": "2. Divide contiguous frames across CP ranks using an estimated per-frame compute cost.",
    "order": "balance batches that mix large images with many smaller video frames. Keeping each rank's\n"
    "frames contiguous allows the gathered outputs to be concatenated without reordering.",
    "ranks": "gradient contributions as the replicated path. Built-in integrations shard across the CP\n"
    "dimension only, even when tensor parallelism (TP) is also enabled. This avoids over-counting\n"
    "gradients for vision-tower weights that are replicated across TP ranks.",
}

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
        *_guide(site),
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
        ReplaceWords(
            path=finetune,
            scope=f"FinetuneRecipeForVLM.{CONTEXT}",
            old="Publish the CP-only group",
            new="Publish the policy's group",
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


def _guide(site: FrameSite) -> list[Edit]:
    """The target's guide, where it has one: what it says of the policy stays true."""
    from skillgen.kernel.render import sections

    page = site.target.root / GUIDE
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    new = sections("vision_frame_sharding/guide.md.j2")
    return [
        ReplaceText(path=GUIDE, old=old, new=new[name].rstrip("\n"))
        for name, old in PASSAGES.items()
        if stands_in(text, old) or stands_in(text, new[name].rstrip("\n"))
    ]
