"""The edits of each part of hierarchical context parallelism, of a place in a target."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from skillgen.kernel.model import (
    AddDefinition,
    AddImport,
    AddItem,
    AddMethod,
    Edit,
    InsertAfter,
    InsertBefore,
    PassKeyword,
    ReplaceExpression,
    ReplaceStatement,
)
from skillgen.techniques.hierarchical_cp.examples import CREATED, MODULE, edits_of, examples
from skillgen.techniques.hierarchical_cp.sites import (
    CONFIG,
    ENGINE,
    INITIALIZE,
    PROVIDER,
    REBINDING,
    STATE,
    Site,
    recipe_layout,
)

SPECS = ("packed_sequence_specs", "pack_sequences_in_batch")
PACKING = ("enable_offline_packing", "enable_in_batch_packing", "packing_buffer_size", *SPECS)


def groups(place: Site, code: Mapping[str, str], consumer: str) -> list[Edit]:
    """Make both levels where the decentralized groups are made, and let attention have them."""
    path, create = place.shown(INITIALIZE), "_create_pg_collection"
    names = ["check_hierarchical_cp_sizes", "create_hierarchical_cp_groups"]
    if consumer == "bridge":
        names.append("set_hierarchical_cp_groups")
    edits: list[Edit] = [AddImport(path=path, module=MODULE, names=tuple(names))]
    if "NotImplementedError" in place.text(INITIALIZE):
        edits.append(
            ReplaceStatement(path=path, function=create, anchor="call:NotImplementedError", code=code["sizes"])
        )
    else:
        size = "world_size = torch.distributed.get_world_size()"
        edits.append(InsertBefore(path=path, function=create, anchor=size, code=code["first-sizes"]))
    edits += [
        InsertAfter(path=path, function=create, anchor=CREATED, code=code["create"]),
        PassKeyword(
            path=path,
            function=create,
            call="ProcessGroupCollection",
            code="hcp=hcp_pgs",
            after="tp_cp",
            instead="hcp=None",
        ),
    ]
    if place.defines(INITIALIZE, "_create_dist_train_pgs"):
        size = "vision_model_config.context_parallel_size = model_config.dist_train.vision_context_parallel_size"
        edits.append(InsertAfter(path=path, function="_create_dist_train_pgs", anchor=size, code=code["vision"]))
    if place.defines(INITIALIZE, "is_rank_in_pg"):
        field = "pg = getattr(pg_collection, field.name, None)"
        edits.append(InsertAfter(path=path, function="is_rank_in_pg", anchor=field, code=code["is-rank"]))
    if consumer == "bridge":
        destroy, made = "parallel_state.destroy_model_parallel()", "call:parallel_state.initialize_model_parallel"
        edits += [
            InsertAfter(path=path, function="destroy_global_state", anchor=destroy, code=code["destroy"]),
            InsertBefore(path=path, function="_initialize_distributed", anchor=made, code=code["mpu"]),
        ]
    edits.append(
        InsertBefore(
            path=place.shown(PROVIDER),
            function="ModelProviderMixin.initialize_model_parallel",
            anchor="call:parallel_state.initialize_model_parallel",
            code=code["provider"],
        )
    )
    if place.source.has(REBINDING):
        rebinding, install = place.shown(REBINDING), "install_pg_collection"
        chunks = "chunks = model if isinstance(model, list) else [model]"
        call = "call:module.set_context_parallel_group"
        edits += [
            InsertBefore(path=rebinding, function=install, anchor=chunks, code=code["rebind-check"]),
            ReplaceStatement(path=rebinding, function=install, anchor=call, code=code["rebind"]),
        ]
    edits += _mocks(place)
    for example in examples(place):
        edits += edits_of(place, example, consumer)
    return edits


def _mocks(place: Site) -> list[Edit]:
    """The target's own tests describe a configuration without sizes by mocks, whose every attribute is something."""
    path = "tests/unit_tests/training/test_decentralized_pg.py"
    text = place.read(path)
    edits: list[Edit] = []
    for cls in (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)):
        for node in (node for node in cls.body if isinstance(node, ast.FunctionDef)):
            source = ast.get_source_segment(text, node) or ""
            uses = node.name == "mock_model_config" or "_create_pg_collection(" in source
            sizes = [line.strip() for line in source.splitlines() if ".context_parallel_size = " in line]
            if uses and len(sizes) == 1 and "hierarchical_context_parallel_sizes" not in source:
                owner, anchor = sizes[0].partition(".")[0], sizes[0].partition("  #")[0]
                code = f"{owner}.hierarchical_context_parallel_sizes = None"
                edits.append(InsertAfter(path=path, function=f"{cls.name}.{node.name}", anchor=anchor, code=code))
    return edits


def checks(place: Site, code: Mapping[str, str]) -> list[Edit]:
    """A method that validates, and its call; where the target validates a part already, that part is mended."""
    path, cls = place.shown(CONFIG), "ConfigContainer"
    edits: list[Edit] = [
        AddImport(path=path, module="megatron.core.transformer.utils", names=("is_layer_window_attention",)),
        AddImport(path=path, module="megatron.core.utils", names=("get_te_version",)),
    ]
    known = place.defines(CONFIG, f"{cls}._validate_cp_comm_type")
    if known:
        old, new = '"a2a+p2p" in ct', '"a2a+p2p" in (ct or "p2p")'
        edits.append(ReplaceExpression(path=path, scope=f"{cls}._validate_cp_comm_type", old=old, new=new))
    anchor = "self._validate_cp_comm_type()" if known else "self._calculate_scheduler_steps()"
    after = "_validate_cp_comm_type" if known else "validate"
    return [
        *edits,
        InsertAfter(path=path, function=f"{cls}.validate", anchor=anchor, code=code["call"]),
        AddMethod(path=path, cls=cls, after=after, code=code["method"]),
    ]


def check_facts(place: Site) -> dict[str, object]:
    """What the checks have to know of the target: its names for packed sequences."""
    text = place.text(CONFIG) + place.text("data/builders/energon.py")
    names = [name for name in PACKING if name in text]
    return {
        "upstream_checks": place.defines(CONFIG, "ConfigContainer._validate_cp_comm_type"),
        "packing": ", ".join(f'"{name}"' for name in names),
        "packed_specs": "packed_sequence_specs" in names,
    }


def recipe(place: Site, code: str) -> list[Edit]:
    """The recipe after the one that it derives from, exported as that one is."""
    path, base, name = recipe_layout(place)
    names = list(place.source.module(path).functions)
    shown, package = place.shown(path), f"{path.rpartition('/')[0]}/__init__.py"
    following = names[names.index(base) + 1]
    edits: list[Edit] = [AddDefinition(path=shown, before=following, code=code)]
    if "__all__" in place.text(path):
        edits.append(AddItem(path=shown, name="__all__", code=f'"{name}"', after=f'"{base}"'))
    if f"    {base},\n" in place.text(package):
        module = "megatron.bridge." + path.removesuffix(".py").replace("/", ".")
        edits.append(AddImport(path=place.shown(package), module=module, names=(name,)))
    return [*edits, AddItem(path=place.shown(package), name="__all__", code=f'"{name}"', after=f'"{base}"')]


def attention(place: Site, code: Mapping[str, str]) -> list[Edit]:
    """megatron-core's own attention reads the collection, and its groups go with the others."""
    engine, init, getter = (
        place.shown(ENGINE),
        "TEDotProductAttention.__init__",
        "get_hierarchical_context_parallel_groups",
    )
    there = 'assert hasattr(pg_collection, "hcp"), "TEDotProductAttention pg_collection must have hierarchical cp pg"'
    return [
        ReplaceStatement(
            path=engine,
            function=init,
            anchor=f'if cp_comm_type == "a2a+p2p":\n    {there}',
            code=code["complete"],
        ),
        ReplaceStatement(
            path=engine,
            function=init,
            anchor=f'extra_kwargs["cp_group"] = {getter}(check_initialized=False)',
            code=code["groups"],
        ),
        InsertAfter(
            path=place.shown(STATE),
            function="destroy_model_parallel",
            anchor="_CONTEXT_PARALLEL_GLOBAL_RANKS = None",
            code="\n\n" + code["reset"],
        ),
    ]


def group_facts(place: Site) -> dict[str, object]:
    """What the unit tests of the groups have to know of the target."""
    return {
        "rebinding": place.source.has(REBINDING),
        "dist_train": place.defines(INITIALIZE, "_create_dist_train_pgs"),
        "is_rank": place.defines(INITIALIZE, "is_rank_in_pg"),
    }


def functional_facts(place: Site) -> dict[str, object]:
    """What the functional test has to know of the target."""
    return {"validation": "validation: ValidationConfig" in place.text(CONFIG), "folder": place.functional_tests}
