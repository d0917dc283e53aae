"""Configuration and recipes of Automodel releases that embed before forward: the same edits for every family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillgen.kernel.model import (
    AddDefinition,
    AddField,
    AddImport,
    AddItem,
    Edit,
    InsertAfter,
    InsertBefore,
    ReplaceStatement,
)

if TYPE_CHECKING:
    from skillgen.techniques.vision_frame_sharding.adapter import FrameSite

DISTRIBUTED = "nemo_automodel.components.distributed"
GLUE = f"{DISTRIBUTED}.vision_frame_sharding"
CP_UTILS = "components/distributed/cp_utils.py"
TRAINS = "shard_embeddings"
DISTILL = "KnowledgeDistillationRecipeForVLM._forward_backward_step"
RECIPES = (
    ("finetune.py", "FinetuneRecipeForVLM._forward_backward_step", "train"),
    ("finetune.py", "FinetuneRecipeForVLM._run_validation_epoch", "evaluate"),
    ("kd.py", DISTILL, "train"),
)


def trains(site: FrameSite) -> bool:
    """Whether an earlier apply let the embedding call train."""
    return TRAINS in (site.target.root / f"{site.package}/{CP_UTILS}").read_text(encoding="utf-8", errors="replace")


def shared_edits(site: FrameSite, *, trainable: bool) -> list[Edit]:
    """The typed policy, its way from YAML to the recipes, and its publication around every embedding call."""
    from skillgen.kernel.render import sections

    code = sections("vision_frame_sharding/before_forward.py.j2", trainable=trainable)
    package, recipes = site.package, f"{site.package}/recipes/vlm"
    edits = [*_configuration(package, code), *_recipes(recipes, code)]
    if not trainable:
        return edits
    kd, path, function = f"{recipes}/kd.py", f"{package}/{CP_UTILS}", "make_cp_batch_and_ctx"
    distill, cut = "\n\n" + code["distill"], code["cut"].rstrip() + "\n\n"  # set off by a blank line
    return [
        *edits,
        AddImport(path=kd, module=f"{DISTRIBUTED}.cp_utils", names=(TRAINS,)),
        InsertAfter(path=kd, function=DISTILL, anchor='labels = batch.pop("labels")', code=distill),
        ReplaceStatement(path=kd, function=DISTILL, anchor=code["teacher"], code=code["own"]),
        AddDefinition(path=path, before=function, code=code["shard"]),
        InsertBefore(path=path, function=function, anchor="call:create_context_parallel_ctx", code=cut),
    ]


def _configuration(package: str, code: dict[str, str]) -> list[Edit]:
    config = f"{package}/components/distributed/config.py"
    parser, keys = f"{package}/recipes/_dist_utils.py", f"{package}/components/utils/model_utils.py"
    return [
        AddImport(path=config, module=GLUE, names=("MultimodalConfig",)),
        AddField(path=config, cls="FSDP2Config", code=code["policy"]),
        AddImport(path=parser, module="dataclasses", names=("fields",)),
        AddImport(path=parser, module=DISTRIBUTED, names=("vision_frame_sharding",)),
        AddDefinition(path=parser, before="parse_distributed_section", code=code["nested"]),
        InsertAfter(path=parser, function="parse_distributed_section", anchor=code["forwarded"], code=code["parse"]),
        AddItem(path=keys, name="VLM_INPUT_KEYS", code='"video_grid_thw"', after='"pixel_values_videos"'),
    ]


def _recipes(folder: str, code: dict[str, str]) -> list[Edit]:
    setup = "FinetuneRecipeForVLM.setup"
    edits: list[Edit] = [
        AddImport(path=f"{folder}/{name}", module=DISTRIBUTED, names=("vision_frame_sharding",))
        for name in ("finetune.py", "kd.py")
    ]
    edits.append(
        InsertBefore(path=f"{folder}/finetune.py", function=setup, anchor=code["rope"], code=code["setup"] + "\n\n")
    )
    return edits + [
        ReplaceStatement(path=f"{folder}/{name}", function=function, anchor=code["embed"], code=code[section])
        for name, function, section in RECIPES
    ]
