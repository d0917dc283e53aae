"""Known defects of vision sharding that targets have already, found by structure: slug, and where it shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from skillgen.kernel.source import Function, Method, Module, Source, calls, dotted, parameters, walk
from skillgen.techniques.shared.evidence import Fact, last_name
from skillgen.techniques.vision_dp_over_cp.evidence import SLICERS

EXPLAINED = {
    "idle-rank-skips-tower": "a rank without items skips the tower, whose parameters then get no gradient",
    "placeholder-type-fixed": "the stand-in on an idle rank has a hard-coded type",
    "gather-call-incomplete": "the gather is called without an argument that it needs",
    "split-call-overfull": "a split is called with more arguments than it takes",
    "backward-drops-gradients": "the gather's backward keeps only this rank's part of the gradient",
    "backward-reduces-in-place": "the gather's backward reduces a gradient buffer in place",
    "split-by-count": "items are split by number, not by size",
    "given-split-not-expanded": "a split given by the caller is used without expanding videos to frames",
}
_COLLECTIVES = {"all_reduce", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single"}
_BLANKS = {"zeros", "empty", "new_zeros", "new_empty"}


def defects(source: Source, method: Method, tower: list[ast.Call]) -> list[tuple[str, Fact]]:
    """What is wrong with the sharding around the tower calls of a method: each slug once, in EXPLAINED's order."""
    module = method.module
    found: dict[str, Fact] = {}
    for slug, fact in (
        *_idle_rank(module, method.node, tower),
        *_wrong_calls(source, module, method.node),
        *_given_split(module, method.node),
    ):
        found.setdefault(slug, fact)
    return [(slug, found[slug]) for slug in EXPLAINED if slug in found]


def _idle_rank(module: Module, function: Function, tower: list[ast.Call]) -> Iterator[tuple[str, Fact]]:
    encodes = {id(call) for call in tower}
    for branch in walk(function):
        if not isinstance(branch, ast.If):
            continue
        blanks = [call for node in branch.orelse for call in calls(node) if last_name(call.func) in _BLANKS]
        if blanks and any(id(call) in encodes for node in branch.body for call in calls(node)):
            yield "idle-rank-skips-tower", Fact(module, branch)
            for keyword in (keyword for call in blanks for keyword in call.keywords):
                if keyword.arg == "dtype" and (module.origin(keyword.value) or "").startswith("torch."):
                    yield "placeholder-type-fixed", Fact(module, keyword.value)


def _wrong_calls(source: Source, module: Module, function: Function) -> Iterator[tuple[str, Fact]]:
    for call in calls(function):
        origin = module.origin(call.func) or ""
        owner, _, last = origin.rpartition(".")
        gather = source.find_class(owner) if last == "apply" else None
        if gather:
            yield from _gather(*gather, Fact(module, call))
        elif last in SLICERS or last.endswith("_cp_split"):
            target = source.find_function(origin)
            if target and not target[1].args.vararg and len(call.args) > len(parameters(target[1])):
                yield "split-call-overfull", Fact(module, call)
            if target and last.endswith("_cp_split"):
                yield from _split_by_count(*target)


def _gather(module: Module, cls: ast.ClassDef, call: Fact) -> Iterator[tuple[str, Fact]]:
    methods = {node.name: node for node in cls.body if isinstance(node, Function)}
    if "forward" not in methods or "backward" not in methods or not isinstance(call.node, ast.Call):
        return
    needed = len(parameters(methods["forward"])) - len(methods["forward"].args.defaults) - 1
    if len(call.node.args) < needed and not any(isinstance(arg, ast.Starred) for arg in call.node.args):
        yield "gather-call-incomplete", call
    backward = methods["backward"]
    reductions = [inner for inner in calls(backward) if last_name(inner.func) in _COLLECTIVES]
    if not reductions:
        yield "backward-drops-gradients", Fact(module, backward)
    copies = any(isinstance(node, ast.Attribute) and node.attr == "clone" for node in walk(backward))
    for inner in reductions:
        if (
            last_name(inner.func) == "all_reduce"
            and not copies
            and inner.args
            and last_name(inner.args[0]) in parameters(backward)
        ):
            yield "backward-reduces-in-place", Fact(module, inner)


def _split_by_count(module: Module, function: Function, depth: int = 3) -> Iterator[tuple[str, Fact]]:
    counts = {
        dotted(node.targets[0])
        for node in walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and dotted(node.value.func) == "len"
    }
    for node in walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) and dotted(node.left) in counts - {None}:
            yield "split-by-count", Fact(module, node)
    for call in calls(function) if depth else ():
        inner = module.functions.get(dotted(call.func) or "")
        if inner is not None:
            yield from _split_by_count(module, inner, depth - 1)


def _given_split(module: Module, function: Function) -> Iterator[tuple[str, Fact]]:
    for branch in walk(function):
        if (
            isinstance(branch, ast.If)
            and isinstance(branch.test, ast.Compare)
            and isinstance(branch.test.ops[0], ast.Is)
        ):
            given = dotted(branch.test.left)
            splits = any(last_name(call.func).endswith("_cp_split") for node in branch.body for call in calls(node))
            if splits and not branch.orelse and given in parameters(function):
                yield "given-split-not-expanded", Fact(module, branch)
