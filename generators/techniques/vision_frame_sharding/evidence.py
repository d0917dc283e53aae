"""Structural facts about vision encoding under context parallelism in Automodel. A fact is the node that proves it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from skillgen.kernel.source import Function, Method, Module, Source, calls, dotted, parameters, walk
from skillgen.techniques.shared.adapter import Call
from skillgen.techniques.shared.evidence import ENCODER, Fact, encoder_like, named_calls, use_of

HOOK = "prepare_model_inputs_for_cp"
OWN = "components/distributed/cp_vision_frame_shard.py"  # the target's own frame sharding, where it has one
RECIPE, DISTILLATION = "recipes/vlm/finetune.py", "recipes/vlm/kd.py"
KEYS = "components/utils/model_utils.py"
EXPLAINED = {
    "no-gradient-before-cp": "tower and token embeddings run under no_grad and learn nothing",
    "video-grid-missing": "the recipe drops video_grid_thw, so a batch with video fails",
    "distillation-publishes-nothing": "the distillation recipe never publishes the group",
    "loop-stays-replicated": "the loop over single images stays replicated: ranks would call the tower unequally",
    "tower-under-cp-dispatcher": "the ring dispatcher, made for the causal sequence, is active in the tower too",
    "cut-in-order": "frames are cut once, in their order, which loads the ranks unevenly",
    "gather-padded": "the gather pads every share to the largest",
    "host-waits-for-tower": "the host waits for the tower to read a flag",
    "modalities-apart": "images and videos are balanced and gathered apart",
}


def hook(methods: dict[str, Method]) -> Fact | None:
    """The method with which a model takes part in context parallelism."""
    return Fact(methods[HOOK].module, methods[HOOK].node) if HOOK in methods else None


def encoders(module: Module) -> list[tuple[ast.ClassDef, Fact]]:
    """Classes that encode images, with what shows it: a call, pixels in `forward`, such a base, or their own tower."""
    found = [(cls, fact) for cls, facts in encoder_like(module) for fact in facts[:1]]
    known = {cls.name for cls, _ in found}
    for cls in module.classes.values():
        if cls.name in known:
            continue
        own = {node.name: node for node in cls.body if isinstance(node, Function)}
        forward = own.get("forward")
        tower = next((node for name, node in own.items() if ENCODER.fullmatch(name)), None)
        if forward is not None and any(re.search("pixel_values", name) for name in parameters(forward)):
            found.append((cls, Fact(module, forward)))
        elif any(_multimodal(module, base) for base in cls.bases):
            found.append((cls, Fact(module, cls)))
        elif tower is not None:
            found.append((cls, Fact(module, tower)))
    return found


def _multimodal(module: Module, base: ast.expr) -> bool:
    origin = module.origin(base) or ""
    return origin.startswith("transformers.") and origin.endswith("ForConditionalGeneration")


def denies_context_parallelism(module: Module, cls: ast.ClassDef) -> Fact | None:
    """`supports_cp` set to False in the capabilities that a class declares."""
    for node in walk(cls) if module.says("supports_cp") else ():
        if isinstance(node, ast.AnnAssign):
            name, value = dotted(node.target), node.value
        elif isinstance(node, ast.keyword):
            name, value = node.arg, node.value
        else:
            continue
        if name == "supports_cp":
            return Fact(module, node) if isinstance(value, ast.Constant) and value.value is False else None
    return None


def rejects_images(module: Module) -> Fact | None:
    """A check that raises where a batch that is cut for context parallelism holds pixels."""
    for function in module.functions.values():
        if "cp_mesh" in parameters(function):
            for node in walk(function):
                if (
                    isinstance(node, ast.If)
                    and any(isinstance(child, ast.Raise) for child in node.body)
                    and any(getattr(part, "value", None) == "pixel_values" for part in walk(node.test))
                ):
                    return Fact(module, node)
    return None


def find(module: Module, methods: dict[str, Method], call: Call) -> tuple[Method | None, list[ast.Call]]:
    """The method that a layout names, and the calls in it."""
    owner, _, name = call.function.rpartition(".")
    method = methods.get(name)
    if owner:
        cls = module.classes.get(owner)
        node = next((n for n in cls.body if isinstance(n, Function) and n.name == name), None) if cls else None
        method = Method(module, cls, node) if cls and node else None
    return method, named_calls(method.node, call.name) if method else []


def about_recipes(source: Source) -> list[tuple[str, Fact]]:
    """What the recipes of the target do to every family: slug, and where it shows."""
    return [*_before_cp(source), *_distillation(source)]


def _before_cp(source: Source) -> Iterator[tuple[str, Fact]]:
    module = source.module(RECIPE) if source.has(RECIPE) else None
    for node in module.statements if module else ():
        if (
            module
            and isinstance(node, ast.With)
            and any((module.origin(part) or "") == "torch.no_grad" for item in node.items for part in walk(item))
            and any(key.arg == "_pre_embed_only" for inner in calls(node) for key in inner.keywords)
        ):
            yield "no-gradient-before-cp", Fact(module, node)
            return


def video_grid_missing(source: Source) -> Fact | None:
    """The list of inputs that the recipe hands to the hook, where it has videos and lacks their grids."""
    module = source.module(KEYS) if source.has(KEYS) else None
    for node in module.tree.body if module else ():
        if module and isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Tuple):
            names = {getattr(entry, "value", None) for entry in node.value.elts}
            if "pixel_values_videos" in names and "video_grid_thw" not in names:
                return Fact(module, node)
    return None


def _distillation(source: Source) -> Iterator[tuple[str, Fact]]:
    """The override of a step that the fine-tuning recipe runs with the group published, and that does not publish."""
    if not (source.has(OWN) and source.has(RECIPE) and source.has(DISTILLATION)):
        return
    parent, child = source.module(RECIPE), source.module(DISTILLATION)
    published = {node.name for node in parent.statements if isinstance(node, Function) and _publishes(node)}
    steps = [node for node in child.statements if isinstance(node, Function) and node.name in published]
    if not any(_publishes(node) for node in child.statements if isinstance(node, Function)):
        yield from (("distillation-publishes-nothing", Fact(child, node)) for node in steps[:1])


def _publishes(function: Function) -> bool:
    return any(
        "frame_sharding" in (dotted(part) or "")
        for node in walk(function)
        if isinstance(node, ast.With)
        for item in node.items
        for part in walk(item.context_expr)
    )


def under_dispatcher(module: Module, hook: Fact) -> Fact | None:
    """The ring sharder that a hook asks for, where nothing in the model's file suspends its dispatcher."""
    ring = use_of(hook.module, hook.node, "shard_batch_aux_only")
    return None if use_of(module, module.tree, "cp_dispatcher_suspended") else ring


def loops_over_tower(module: Module, cls: ast.ClassDef) -> Fact | None:
    """A call of the tower in a loop over images that a caller counts."""
    for node in walk(cls):
        if isinstance(node, ast.For):
            for call in calls(node):
                name = (dotted(call.func) or "").split(".")
                if name[0] == "self" and ENCODER.fullmatch(name[-1]) and "enumerate" in _names(node.iter):
                    return Fact(module, call)
    return None


def _names(node: ast.AST) -> set[str]:
    return {getattr(child, "id", "") for child in walk(node)}


def weaknesses(source: Source, method: Method, wired: Sequence[ast.Call]) -> list[tuple[str, Fact]]:
    """What the target's own sharding leaves on the table: each slug once, in EXPLAINED's order."""
    found: dict[str, Fact] = {}
    for call in wired[:1]:
        helper = source.find_function(method.module.origin(call.func) or "")
        for function in _reached(*helper) if helper else ():
            for slug, node in _weak(function):
                found.setdefault(slug, Fact(helper[0], node) if helper else Fact(method.module, node))
    for caller in method.cls.body:
        uses = named_calls(caller, f"self.{method.node.name}") if isinstance(caller, Function) else []
        if len(uses) > 1:
            found.setdefault("modalities-apart", Fact(method.module, uses[1]))
    return [(slug, found[slug]) for slug in EXPLAINED if slug in found]


def _reached(module: Module, function: Function) -> list[Function]:
    """A function and those of its file that it calls, directly or not."""
    reached = {function.name: function}
    waiting = [function]
    while waiting:
        for call in calls(waiting.pop()):
            inner = module.functions.get(dotted(call.func) or "")
            if inner is not None and inner.name not in reached:
                reached[inner.name] = inner
                waiting.append(inner)
    return list(reached.values())


def _weak(function: Function) -> Iterator[tuple[str, ast.AST]]:
    largest = {
        dotted(node.targets[0])
        for node in walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and dotted(node.value.func) == "max"
    }
    reduces = any((dotted(call.func) or "").endswith("all_reduce") for call in calls(function))
    for call in calls(function):
        name = (dotted(call.func) or "").rpartition(".")
        if name[0] == "bisect":
            yield "cut-in-order", call
        elif name[2] in {"new_zeros", "zeros"} and any(
            isinstance(arg, ast.BinOp) and isinstance(arg.op, ast.Sub) and dotted(arg.left) in largest - {None}
            for arg in call.args
        ):
            yield "gather-padded", call
        elif name[2] == "item" and reduces:
            yield "host-waits-for-tower", call
