"""Tell the dense fallback of block-diagonal attention that key and value heads are grouped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import AnchorDrift, SkillgenError
from skillgen.kernel.model import Edit, FamilyPlan, Outcome, ReplaceStatement, Row
from skillgen.kernel.source import Function, Module, Source, SourceSyntaxError, calls, dotted, walk
from skillgen.techniques.blockdiag_gqa import NAME
from skillgen.techniques.shared.vendoring import add_files, header
from skillgen.techniques.vision_dp_over_cp.evidence import Fact

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

VERIFIED = "0.7.0 and main at 36044ad3d"
MODELS, ATTENTION = "components/models", "cp_blockdiag_sdpa"
RUNTIME = "components/distributed/blockdiag_cp/runtime.py"
FIRST = "qwen3_5_moe"  # the family that upstream gave this attention
_CALL = re.compile(rb"\bcp_blockdiag_sdpa\(")
COMMENT = "# The varlen kernels see that heads are grouped; the dense fallback has to be told.\n"


@dataclass(frozen=True)
class _Dispatch:
    """The statement of a model that calls the attention."""

    family: str
    module: Module
    function: str
    statement: ast.stmt
    call: ast.Call


def rows(target: Target) -> list[Row]:
    """The verdict on every model that calls block-diagonal attention."""
    if target.product != "automodel":
        return []
    source = Source(target.root, target.package)
    try:
        found = list(_dispatches(source))
        return [_row(target, source, dispatch) for dispatch in found] or _without(source)
    except AnchorDrift as drift:
        notes = (f"sought: {drift.sought}", f"verified: {drift.verified}")
        near = drift.nearest or (drift.where,)
        return [Row(NAME, FIRST, Outcome.DRIFT, "anchor-moved", drift.message, near, notes=notes)]
    except SourceSyntaxError as error:
        return [Row(NAME, FIRST, Outcome.REFUSED, error.code, error.message, (error.where,))]


def plan(target: Target, family: str, options: Mapping[str, Any]) -> FamilyPlan:
    """The edits that repair one model; the caller has checked that it is plannable."""
    source = Source(target.root, target.package)
    dispatch = next((found for found in _dispatches(source) if found.family == family), None)
    if dispatch is None:
        raise SkillgenError("family-absent", f"{family} does not call {ATTENTION}", where=str(target.root))
    statement, told = _unpatched(dispatch)
    edit = ReplaceStatement(
        path=dispatch.module.shown, function=dispatch.function, anchor=statement, code=COMMENT + told
    )
    tests = _tests(target, dispatch)
    notes = () if (target.root / "tests").is_dir() else ("no-test-tree",)
    return FamilyPlan(NAME, family, (edit, *tests), notes, VERIFIED)


def _row(target: Target, source: Source, dispatch: _Dispatch) -> Row:
    def verdict(outcome: Outcome, reason: str, detail: str, *facts: Fact, plannable: bool = False) -> Row:
        where = tuple(fact.where for fact in facts)
        notes = () if (target.root / "tests").is_dir() else ("no-test-tree",)
        return Row(NAME, dispatch.family, outcome, reason, detail, where, plannable, notes)

    call = Fact(dispatch.module, dispatch.call)
    if any(keyword.arg == "enable_gqa" for keyword in dispatch.call.keywords):
        if _has_receipt(target, dispatch.family):
            return verdict(Outcome.APPLIED, "patched-by-skillgen", "this family carries our patch", call)
        return verdict(Outcome.UPSTREAM, "upstream-has-it", "the fallback is told that heads are grouped", call)
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
        raise AnchorDrift(f"call {ATTENTION} in {MODELS}", where=where, verified=VERIFIED, nearest=(where,))
    first = f"{MODELS}/{FIRST}/model.py"
    if not source.has(first):
        return []
    detail = "the target has no block-diagonal attention"
    return [Row(NAME, FIRST, Outcome.REFUSED, "no-block-diagonal-attention", detail, (f"{source.shown(first)}:1",))]


def _dispatches(source: Source) -> Iterator[_Dispatch]:
    for path in source.files(MODELS, matching=_CALL):
        module = source.module(path)
        family = path.removeprefix(MODELS + "/").partition("/")[0].removesuffix(".py")
        for cls in module.classes.values():
            for function in cls.body:
                if isinstance(function, Function):
                    for statement in walk(function):
                        if isinstance(statement, (ast.Return, ast.Assign)):
                            for call in calls(statement):
                                if dotted(call.func) == ATTENTION:
                                    yield _Dispatch(family, module, f"{cls.name}.{function.name}", statement, call)


def _fallback(source: Source) -> Fact | None:
    """The place that repeats key and value heads only where it is told that they are grouped."""
    module = source.module(RUNTIME) if source.has(RUNTIME) else None
    function = module.functions.get(ATTENTION) if module else None
    for node in walk(function) if function else ():
        if module and isinstance(node, ast.If) and any(_last(call) == "repeat_interleave" for call in calls(node)):
            told = any(isinstance(part, ast.Name) and part.id == "enable_gqa" for part in walk(node.test))
            return Fact(module, node) if told else None
    if module is None:
        return None
    where = module.where(function)
    raise AnchorDrift(f"repeated heads in {ATTENTION}", where=where, verified=VERIFIED, nearest=(where,))


def _last(call: ast.Call) -> str:
    return (dotted(call.func) or "").rpartition(".")[2]


def _unpatched(dispatch: _Dispatch) -> tuple[str, str]:
    """The statement without the keyword and with it."""
    told = _one_line(dispatch)
    if told is None:
        raise SkillgenError("grouping-not-told", "the call is not of the form that can be patched")
    call = ast.parse(told).body[0]
    for node in ast.walk(call):
        if isinstance(node, ast.Call) and dotted(node.func) == ATTENTION:
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "enable_gqa"]
    return ast.unparse(call), told


def _one_line(dispatch: _Dispatch) -> str | None:
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


def _tests(target: Target, dispatch: _Dispatch) -> list[Edit]:
    from skillgen.kernel.render import render

    folder = target.root / "tests/unit_tests/models" / dispatch.family
    if not folder.is_dir():
        return []
    module = dispatch.module.name
    cls, _, method = dispatch.function.partition(".")
    content = render("blockdiag_gqa/tests/attention.py.j2", module=module, cls=cls, method=method)
    path = f"tests/unit_tests/models/{dispatch.family}/test_{dispatch.family}_blockdiag_gqa.py"
    return list(add_files(header(target.root / dispatch.module.shown), {path: content}))


def _has_receipt(target: Target, family: str) -> bool:
    from skillgen.ledger.receipts import file_name

    return (target.state_dir / file_name((NAME, family))).is_file()
