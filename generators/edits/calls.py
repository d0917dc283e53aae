"""Add a parameter, pass a keyword, or call something else with the same arguments."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import libcst as cst

from skillgen.edits.anchors import calls_of, find_call, find_function, no_call
from skillgen.edits.shape import own_calls, shape
from skillgen.edits.splice import Splice
from skillgen.edits.tree import Tree, closest
from skillgen.edits.wrap import add_item, call_brackets, relayout, signature_brackets
from skillgen.kernel.model import AddParameter, PassKeyword, ReplaceCallee


def _signature(function: cst.FunctionDef) -> Sequence[cst.Param | cst.ParamSlash | cst.ParamStar]:
    """Parameters and markers in source order."""
    params = function.params
    kinds = (cst.Param, cst.ParamSlash, cst.ParamStar)
    parts = [*params.posonly_params, params.posonly_ind, *params.params, params.star_arg, *params.kwonly_params]
    return [part for part in [*parts, params.star_kwarg] if isinstance(part, kinds)]


def _labels(params: Sequence[cst.Param | cst.ParamSlash | cst.ParamStar]) -> list[str]:
    return [param.name.value if isinstance(param, cst.Param) else "" for param in params]


def add_parameter(edit: AddParameter, tree: Tree) -> Splice | None:
    """Done already if the signature has the parameter with the same annotation and default."""
    function = find_function(tree, edit.function)
    template = cst.parse_statement(f"def _({edit.code}): pass")
    assert isinstance(template, cst.FunctionDef)
    (new,) = template.params.params
    params = _signature(function)
    names = _labels(params)
    if new.name.value in names:
        there = params[names.index(new.name.value)]
        if tree.shape(there) == shape(new):
            return None
        raise tree.drift(f"parameter `{edit.code}` as this edit writes it in {edit.function}", [there], near=function)
    if edit.after not in names:
        near = closest(edit.after, zip(names, params, strict=True)) or [function]
        raise tree.drift(f"parameter {edit.after} of {edit.function}", near, near=function)
    pair = signature_brackets(tree, function, params)
    return add_item(tree, tree.module, pair, names.index(edit.after), edit.code)


def pass_keyword(edit: PassKeyword, tree: Tree) -> Splice | None:
    """Done already if the call passes the keyword with the new value."""
    call = find_call(tree, edit.function, edit.call, edit.within)
    template = cst.parse_expression(f"_({edit.code})")
    assert isinstance(template, cst.Call)
    (new,) = template.args
    assert new.keyword is not None
    names = [arg.keyword.value if arg.keyword else "" for arg in call.args]
    if new.keyword.value in names:
        there = call.args[names.index(new.keyword.value)]
        if tree.shape(there) == shape(new):
            return None
        if edit.instead and tree.shape(there) == _argument(edit.instead):
            value = Splice(*tree.span(there.value), _code(new.value))
            return relayout(tree, find_function(tree, edit.function), call_brackets(tree, call), [value]) or value
        raise tree.drift(f"keyword `{edit.code}` as this edit passes it to {edit.call}", [there], near=call)
    if edit.after not in names:
        near = closest(edit.after, zip(names, call.args, strict=True)) or [call]
        raise tree.drift(f"keyword {edit.after} of the call of {edit.call} in {edit.function}", near, near=call)
    scope = find_function(tree, edit.function)
    return add_item(tree, scope, call_brackets(tree, call), names.index(edit.after), edit.code)


def _argument(code: str) -> Hashable:
    call = cst.parse_expression(f"_({code})")
    assert isinstance(call, cst.Call)
    return shape(call.args[0])


def _code(node: cst.CSTNode) -> bytes:
    return cst.Module(body=()).code_for_node(node).encode()


def replace_callee(edit: ReplaceCallee, tree: Tree) -> Splice | None:
    """Done already if the new callee is called in the place and the old one is not."""
    scope = find_function(tree, edit.function)
    wanted = shape(cst.parse_expression(edit.callee))
    calls = calls_of(tree, scope, edit.within)
    if edit.within and not calls:
        calls = calls_of(tree, scope, edit.within.replace(edit.call, edit.callee))
    done = [call for call in calls if tree.shape(call.func) == wanted]
    inside = {id(inner) for call in done for inner in own_calls(call.func)}
    found = [call for call in calls if tree.is_name(call.func, edit.call) and id(call) not in inside]
    found = [call for call in found if tree.shape(call.func) != wanted]
    if not found and done:
        return None
    if len(found) != 1:
        raise no_call(tree, scope, edit.function, edit.call, edit.within, found)
    new = Splice(*tree.span(found[0].func), edit.callee.encode())
    return relayout(tree, scope, call_brackets(tree, found[0]), [new]) or new
