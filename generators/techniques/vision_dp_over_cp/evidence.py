"""Structural facts about a vision-encoder call site. Each question answers with the node that proves it, or None."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from skillgen.kernel.source import Function, Method, Module, Source, calls, dotted, parameters, statements, walk
from skillgen.techniques.shared.evidence import Fact, names_in

SLICERS = {
    "slice_batch_for_context_parallel",
    "split_data_cp_rank",
    "_split_on_cp_rank",
    "_context_parallel_index",
    "get_packed_seq_cp_partition_indices",
}
SHARDED = re.compile(r"vision_dp\w*|AllGatherVision\w*|get_vision_cp_data|\w*_context_parallel_ranks_dynamic_res")
_SHARDED_TEXT = re.compile(SHARDED.pattern.encode())


def forwards_everything(methods: dict[str, Method]) -> Fact | None:
    """`forward(self, *args, **kwargs)` that hands its arguments on to an attribute and adds nothing."""
    forward = methods.get("forward")
    if forward is None:
        return None
    signature = forward.node.args
    if not (signature.vararg and signature.kwarg) or len(parameters(forward.node)) > 1:
        return None
    for call in calls(forward.node):
        passed = [*call.args, *(keyword.value for keyword in call.keywords)]
        if len(passed) == 2 and isinstance(passed[0], ast.Starred) and (dotted(call.func) or "").startswith("self."):
            return Fact(forward.module, call)
    return None


def core_model(source: Source, module: Module, cls: ast.ClassDef, name: str) -> Fact | None:
    """A base class, annotation or constructor call of a megatron-core class with this name, in the class's lineage."""
    for where, owner in source.lineage(module, cls):
        for node in walk(owner) if where.says(name) else ():
            if isinstance(node, (ast.Name, ast.Attribute)):
                origin = where.origin(node) or ""
                if origin.startswith("megatron.core.") and origin.endswith("." + name):
                    return Fact(where, node)
    return None


def rejects_context_parallelism(source: Source, module: Module, cls: ast.ClassDef) -> Fact | None:
    """A check in the provider that raises for every context parallel size above 1."""
    for where, owner in source.lineage(module, cls):
        for node in statements(owner) if where.says("context_parallel_size") else ():
            if isinstance(node, ast.If) and any(isinstance(child, ast.Raise) for child in node.body):
                tests = _operands(node.test, ast.Or)
                if any(_compares_cp(test, (ast.NotEq, ast.Gt), (ast.GtE,)) for test in tests):
                    return Fact(where, node)
            elif isinstance(node, ast.Assert):
                tests = _operands(node.test, ast.And)
                if any(_compares_cp(test, (ast.Eq, ast.LtE), (ast.Lt,)) for test in tests):
                    return Fact(where, node)
    return None


def _operands(node: ast.expr, operator: type[ast.boolop]) -> list[ast.expr]:
    return node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, operator) else [node]


def _compares_cp(test: ast.AST, with_one: tuple[type, ...], with_two: tuple[type, ...]) -> bool:
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant)):
        return False
    bound = test.comparators[0].value
    operators = {1: with_one, 2: with_two}.get(bound, ()) if isinstance(bound, int) else ()
    right = isinstance(test.ops[0], operators)
    left = _operands(test.left, ast.Or)[0]
    if isinstance(left, ast.Call) and dotted(left.func) == "getattr" and len(left.args) > 1:
        return (
            right and dotted(left.args[0]) == "self" and getattr(left.args[1], "value", "") == "context_parallel_size"
        )
    return right and dotted(left) == "self.context_parallel_size"


def sharded_already(module: Module, cls: ast.ClassDef) -> list[Fact]:
    """Uses of a vision sharding that the target has already, the first of each name."""
    found: dict[str, Fact] = {}
    for node in walk(cls) if _SHARDED_TEXT.search(module.text) else ():
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        if name and SHARDED.fullmatch(name):
            found.setdefault(name, Fact(module, node))
    return sorted(found.values(), key=lambda fact: getattr(fact.node, "lineno", 0))


def slices_after(module: Module, methods: dict[str, Method], encoder_calls: set[str]) -> Fact | None:
    """The first call in `forward`, after the last encoder call, that slices the sequence for context parallelism."""
    forward = methods.get("forward")
    if forward is None:
        return None

    def slices(call: ast.Call, where: Module) -> bool:
        return (where.origin(call.func) or "").rpartition(".")[2] in SLICERS

    def encodes(call: ast.Call, where: Module) -> bool:
        return dotted(call.func) in encoder_calls

    encoded = [call.lineno for call in calls(forward.node) if _reaches(call, forward.module, methods, encodes)]
    for call in calls(forward.node) if encoded else ():
        if call.lineno > max(encoded) and _reaches(call, forward.module, methods, slices):
            return Fact(forward.module, call)
    return None


def _reaches(
    call: ast.Call,
    module: Module,
    methods: dict[str, Method],
    wanted: Callable[[ast.Call, Module], bool],
    seen: frozenset[int] = frozenset(),
) -> bool:
    """Whether a call is wanted, or calls a method of the class or a function of the file that reaches one."""
    if wanted(call, module):
        return True
    name = dotted(call.func) or ""
    if name.startswith("self.") and name[5:] in methods:
        where, body = methods[name[5:]].module, methods[name[5:]].node
    elif name in module.functions:
        where, body = module, module.functions[name]
    else:
        return False
    if id(body) in seen:
        return False
    return any(_reaches(inner, where, methods, wanted, seen | {id(body)}) for inner in calls(body))


def items_coupled(module: Module, attention: ast.ClassDef) -> Fact | None:
    """The attention call of a packed tower that lets the items of one call attend to one another.

    None if a mask or `cu_seqlens` reaches it from the tower's entry. Where this cannot be seen, the class counts as
    coupled.
    """
    function = next((node for node in attention.body if getattr(node, "name", "") == "forward"), None)
    if not isinstance(function, Function):
        return Fact(module, attention)
    names = parameters(function)
    lengths = [name for name in names if re.search(r"cu_seq|seqlens|lengths|packed_seq", name)]
    if any(_given(module, attention, function, name) for name in lengths):
        return None
    attending = [
        call for call in calls(function) if (dotted(call.func) or "").endswith("scaled_dot_product_attention")
    ]
    for call in attending:
        mask = next((key.value for key in call.keywords if key.arg == "attn_mask"), None)
        mask = call.args[3] if mask is None and len(call.args) > 3 else mask
        if mask is None or isinstance(mask, ast.Constant):
            return Fact(module, call)
        from_outside = [name for name in names_in([mask]) if name in names and name != "self"]
        if from_outside and not any(_given(module, attention, function, name) for name in from_outside):
            return Fact(module, call)
    return None if attending else Fact(module, attention)


def _given(module: Module, cls: ast.ClassDef, function: Function, name: str, depth: int = 6) -> bool:
    """Whether every caller within the file passes something other than None for a parameter of `cls.forward`."""
    callers = list(_callers(module, cls))
    if not callers or not depth:
        positional = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        optional = positional[len(positional) - len(function.args.defaults) :] if function.args.defaults else []
        return name in positional and name not in optional
    index = parameters(function).index(name) - 1
    for owner, caller, call in callers:
        value = next((key.value for key in call.keywords if key.arg == name), None)
        value = call.args[index] if value is None and index < len(call.args) else value
        if value is None or isinstance(value, ast.Constant):
            return False
        passed_on = value.id if isinstance(value, ast.Name) and caller.name == "forward" else ""
        if passed_on in parameters(caller) and not _given(module, owner, caller, passed_on, depth - 1):
            return False
    return True


def _callers(module: Module, cls: ast.ClassDef) -> Iterator[tuple[ast.ClassDef, Function, ast.Call]]:
    """Calls of instances of a class that other classes of the file keep in an attribute or a list of modules."""
    for owner in module.classes.values():
        kept = {
            name
            for node in walk(owner)
            if isinstance(node, ast.Assign) and any(dotted(call.func) == cls.name for call in calls(node.value))
            for name in map(dotted, node.targets)
            if name
        }
        for function in owner.body if kept else ():
            if isinstance(function, Function) and function.name != "__init__":
                loops = {
                    dotted(loop.target)
                    for loop in walk(function)
                    if isinstance(loop, ast.For) and any(dotted(part) in kept for part in walk(loop.iter))
                }
                for call in calls(function):
                    callee = call.func.value if isinstance(call.func, ast.Subscript) else call.func
                    if dotted(callee) in (kept | loops) - {None}:
                        yield owner, function, call
