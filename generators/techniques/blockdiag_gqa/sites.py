"""Where models of Automodel call block-diagonal attention, and what its dense fallback makes of grouped heads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.source import Function, Module, Source, calls, dotted, walk
from skillgen.techniques.blockdiag_gqa import NAME as TECHNIQUE
from skillgen.techniques.shared import verdicts
from skillgen.techniques.shared.evidence import Fact, last_name, named_calls

VERIFIED = "0.7.0 and main at 36044ad3d"
MODELS, ATTENTION = "components/models", "cp_blockdiag_sdpa"
RUNTIME = "components/distributed/blockdiag_cp/runtime.py"
FIRST = "qwen3_5_moe"  # the family that upstream gave this attention
_CALL = re.compile(rb"\bcp_blockdiag_sdpa\(")


@dataclass(frozen=True)
class Dispatch:
    """The statement of a model that calls the attention."""

    family: str
    module: Module
    function: str
    statement: ast.stmt
    call: ast.Call


def rows(source: Source) -> list[Row]:
    """One row per model that calls the attention."""
    return verdicts.folded(TECHNIQUE, FIRST, _rows, source)


def find(source: Source, family: str) -> Dispatch:
    """The call of one model."""
    found = next((found for found in _dispatches(source) if found.family == family), None)
    if found is None:
        raise verdicts.absent(source.target, f"{family} does not call {ATTENTION}")
    return found


def _rows(source: Source) -> list[Row]:
    return [_row(source, dispatch) for dispatch in _dispatches(source)] or _without(source)


def _row(source: Source, dispatch: Dispatch) -> Row:
    def verdict(outcome: Outcome, reason: str, detail: str, *facts: Fact, plannable: bool = False) -> Row:
        where, notes = tuple(fact.where for fact in facts), verdicts.test_tree_notes(source.target)
        return Row(TECHNIQUE, dispatch.family, outcome, reason, detail, where, plannable, notes)

    call = Fact(dispatch.module, dispatch.call)
    if any(keyword.arg == "enable_gqa" for keyword in dispatch.call.keywords):
        if verdicts.has_receipt(source.target, TECHNIQUE, dispatch.family):
            return verdict(*verdicts.OURS, "this family carries our patch", call)
        return verdict(*verdicts.THEIRS, "the fallback is told that heads are grouped", call)
    fallback = _fallback(source)
    if fallback is None:
        return verdict(Outcome.UPSTREAM, "fallback-sees-it", "the fallback looks at the heads themselves", call)
    detail = "without the varlen kernels (fp32, or no flash_attn) the dense fallback crashes where heads are grouped"
    if _one_line(dispatch) is None:
        return verdict(Outcome.APPLICABLE, "grouping-not-told", detail, call, fallback)
    return verdict(Outcome.APPLICABLE, "grouping-not-told", detail, call, fallback, plannable=True)


def _without(source: Source) -> list[Row]:
    """No model calls the attention: either the target does not have it, or the call moved."""
    if source.has(RUNTIME):
        module = source.module(RUNTIME)
        where = module.where(module.functions.get(ATTENTION))
        raise verdicts.drift(f"call {ATTENTION} in {MODELS}", where, VERIFIED, [where])
    first = f"{MODELS}/{FIRST}/model.py"
    if not source.has(first):
        return []
    detail = "the target has no block-diagonal attention"
    return [
        Row(TECHNIQUE, FIRST, Outcome.REFUSED, "no-block-diagonal-attention", detail, (f"{source.shown(first)}:1",))
    ]


def _dispatches(source: Source) -> Iterator[Dispatch]:
    for path in source.files(MODELS, matching=_CALL):
        module = source.module(path)
        family = path.removeprefix(MODELS + "/").partition("/")[0].removesuffix(".py")
        for cls in module.classes.values():
            for function in cls.body:
                if isinstance(function, Function):
                    for statement in walk(function):
                        if isinstance(statement, (ast.Return, ast.Assign)):
                            for call in named_calls(statement, ATTENTION):
                                yield Dispatch(family, module, f"{cls.name}.{function.name}", statement, call)


def _fallback(source: Source) -> Fact | None:
    """The place that repeats key and value heads only where it is told that they are grouped."""
    module = source.module(RUNTIME) if source.has(RUNTIME) else None
    function = module.functions.get(ATTENTION) if module else None
    for node in walk(function) if function else ():
        if (
            module
            and isinstance(node, ast.If)
            and any(last_name(call.func) == "repeat_interleave" for call in calls(node))
        ):
            told = any(isinstance(part, ast.Name) and part.id == "enable_gqa" for part in walk(node.test))
            return Fact(module, node) if told else None
    if module is None:
        return None
    where = module.where(function)
    raise verdicts.drift(f"repeated heads in {ATTENTION}", where, VERIFIED, [where])


def unpatched(dispatch: Dispatch) -> tuple[str, str]:
    """The statement without the keyword and with it."""
    told = _one_line(dispatch)
    if told is None:
        raise SkillgenError("grouping-not-told", "the call is not of the form that can be patched")
    call = ast.parse(told).body[0]
    for node in ast.walk(call):
        if isinstance(node, ast.Call) and dotted(node.func) == ATTENTION:
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "enable_gqa"]
    return ast.unparse(call), told


def _one_line(dispatch: Dispatch) -> str | None:
    """The statement as it shall be; None where query and key are not names that can be asked for their shape."""
    names = [arg.id for arg in dispatch.call.args if isinstance(arg, ast.Name)]
    if len(names) < 2 or len(names) != len(dispatch.call.args):
        return None
    text = ast.unparse(dispatch.statement)
    if any(keyword.arg == "enable_gqa" for keyword in dispatch.call.keywords):
        return text
    flag = f"enable_gqa={names[0]}.shape[1] != {names[1]}.shape[1]"
    others = [ast.unparse(keyword) for keyword in dispatch.call.keywords]
    told = f"{ATTENTION}({', '.join([*names, flag, *others])})"
    return text.replace(ast.unparse(dispatch.call), told)
