"""The edits that give Qwen3-VL's vision tower degrees of its own, of a place in Megatron-Bridge."""

from __future__ import annotations

from collections.abc import Mapping

from skillgen.kernel.model import (
    AddDefinition,
    AddField,
    AddImport,
    AddMethod,
    Edit,
    InsertAfter,
    InsertBefore,
    PassKeyword,
    ReplaceCallee,
    ReplaceStatement,
)
from skillgen.techniques.vision_tp_dp.sites import (
    BRIDGE,
    CONFIG,
    LOAD,
    MODEL,
    MODEL_CLASS,
    PARALLEL,
    REGISTRY,
    SETUP,
    Site,
)

MODULE = "megatron.bridge." + PARALLEL.removesuffix(".py").replace("/", ".")
RUNTIME = "megatron.bridge.models.common.vision_sharding"
INSTALL = "mapping_registry.set_process_groups_from_pg_collection(pg_collection)"
SETTER = "set_process_groups_from_pg_collection"
CALL = """\
vision_embeds, deepstack_feature_lists = {}(
    hidden_states=vision_data,
    grid_thw=vision_grid_thw,
)
output_vision_module = pack_dist_train_vision_module_output(
    vision_embeds,
    deepstack_feature_lists,
)"""


def edits(place: Site, code: Mapping[str, str]) -> list[Edit]:
    """All of them, file by file."""
    return [*_providers(place, code), *_model(place, code), *_conversion(place, code), *_training(place, code)]


def _providers(place: Site, code: Mapping[str, str]) -> list[Edit]:
    found: list[Edit] = []
    for path, classes in place.providers.items():
        found.append(AddImport(path=place.shown(path), module=MODULE, names=("resolve_vision_tp_dp",)))
        for cls in classes:
            found += [
                AddField(path=place.shown(path), cls=cls, code=code["fields"], after="vision_dp_when_cp"),
                InsertBefore(
                    path=place.shown(path),
                    function=f"{cls}.finalize",
                    anchor="super().finalize()",
                    code="resolve_vision_tp_dp(self)",
                ),
            ]
    return found


def _model(place: Site, code: Mapping[str, str]) -> list[Edit]:
    path, init, forward = place.shown(MODEL), f"{MODEL_CLASS}.__init__", f"{MODEL_CLASS}.forward"
    vision, layers = "Qwen3VLVisionModel", "megatron_vision_transformer_config.first_pipeline_num_layers = None"
    found: list[Edit] = [
        AddImport(path=path, module="megatron.core.dist_checkpointing.mapping", names=("ShardedStateDict",)),
        AddImport(path=path, module=MODULE, names=("make_vision_groups",)),
        AddImport(path=path, module=RUNTIME, names=("tp_dp",)),
        AddImport(path=path, module=f"{RUNTIME}.plan", names=("cost_alpha",)),
        InsertAfter(path=path, function=init, anchor="self.embd_group = pg_collection.embd", code=code["groups"]),
        InsertAfter(path=path, function=init, anchor=layers, code=code["config"]),
        PassKeyword(
            path=path,
            function=init,
            call=vision,
            code="pg_collection=self.vision_pg_collection",
            after="post_process",
            instead="pg_collection=pg_collection",
        ),
        InsertAfter(path=path, function=init, anchor=f"call:{vision}", code=code["replicas"]),
        AddMethod(path=path, cls=MODEL_CLASS, after="freeze", code=code["encode"]),
        AddMethod(path=path, cls=MODEL_CLASS, after="freeze", code=code["state"]),
        InsertBefore(path=path, function=forward, anchor="if:vision_data.shape[0] > 0", code=code["call"]),
    ]
    if "pack_dist_train_vision_module_output" in place.text(MODEL):  # the same call in two places: this one first
        old, new = (CALL.format(name) for name in ("self.vision_model", "encode_vision"))
        found.append(ReplaceStatement(path=path, function=forward, anchor=old, code=new))
    return [*found, ReplaceCallee(path=path, function=forward, call="self.vision_model", callee="encode_vision")]


def _conversion(place: Site, code: Mapping[str, str]) -> list[Edit]:
    registry, bridge, cls = place.shown(REGISTRY), place.shown(BRIDGE), "MegatronMappingRegistry"
    prepared = f"mapping.{SETTER}(self._pg_collection)"
    found: list[Edit] = [
        InsertAfter(
            path=registry,
            function=f"{cls}.__init__",
            anchor="self._pg_collection = None",
            code="self._vision_pg_collection = None",
        ),
        AddMethod(path=registry, cls=cls, after=SETTER, code=code["registry"]),
        ReplaceStatement(path=registry, function=f"{cls}._prepare_mapping", anchor=prepared, code=code["prepare"]),
        AddImport(path=bridge, module=f"{RUNTIME}.tp_dp", names=("VisionGroups",)),
        AddDefinition(path=bridge, before="_get_pp_group", code=code["bridge"]),
    ]
    install = "_set_vision_process_groups(mapping_registry, megatron_model)"
    for name in ("build_conversion_tasks", "build_export_fp8_tasks"):
        function = f"MegatronModelBridge.{name}"
        found.append(InsertAfter(path=bridge, function=function, anchor=INSTALL, code=install))
    return found


def _training(place: Site, code: Mapping[str, str]) -> list[Edit]:
    setup, config, load = place.shown(SETUP), place.shown(CONFIG), place.shown(LOAD)
    finalize = "model_config.finalize_model_grads_func = partial(finalize_model_grads, pg_collection=pg_collection)"
    return [
        AddImport(path=setup, module=MODULE, names=("check_vision_adapters",)),
        AddImport(path=setup, module=f"{RUNTIME}.tp_dp", names=("with_replica_sum",)),
        InsertAfter(path=setup, function="_update_model_config_funcs", anchor=finalize, code=code["finalize-grads"]),
        InsertAfter(
            path=setup,
            function="_apply_peft_transformation",
            anchor="transformed_model = peft(base_model, training=True)",
            code="check_vision_adapters(transformed_model)",
        ),
        AddImport(path=config, module=MODULE, names=("validate_vision_tp_dp",)),
        InsertBefore(
            path=config,
            function="ConfigContainer.validate",
            anchor="if:self.dist.use_megatron_fsdp or self.ddp.use_megatron_fsdp",
            code="validate_vision_tp_dp(self)",
        ),
        InsertAfter(
            path=load,
            function="load_megatron_model",
            anchor="model_cfg.hierarchical_context_parallel_sizes = None",
            code=code["load"],
        ),
    ]
