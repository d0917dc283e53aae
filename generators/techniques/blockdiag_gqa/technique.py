"""Tell the dense fallback of block-diagonal attention that key and value heads are grouped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillgen.kernel.model import AddFile, FamilyPlan, ReplaceStatement, Row
from skillgen.techniques.blockdiag_gqa import NAME

if TYPE_CHECKING:
    from skillgen.kernel.source import Source
    from skillgen.techniques.blockdiag_gqa.sites import Dispatch

COMMENT = "# The varlen kernels see that heads are grouped; the dense fallback has to be told.\n"


def rows(source: Source) -> list[Row]:
    """The verdict on every model that calls block-diagonal attention."""
    from skillgen.techniques.blockdiag_gqa import sites

    return sites.rows(source)


def plan(source: Source, family: str, options: Mapping[str, Any]) -> FamilyPlan:
    """The edits that repair one model; the caller has checked that it is plannable."""
    from skillgen.techniques.blockdiag_gqa import sites

    dispatch = sites.find(source, family)
    statement, told = sites.unpatched(dispatch)
    path, function = dispatch.module.shown, dispatch.function
    edit = ReplaceStatement(path=path, function=function, anchor=statement, code=COMMENT + told)
    return FamilyPlan(NAME, family, (edit, *_tests(source, dispatch)), verified=sites.VERIFIED)


def _tests(source: Source, dispatch: Dispatch) -> list[AddFile]:
    from skillgen.techniques.shared.vendoring import rendered

    target, family = source.target, dispatch.family
    folder = f"{target.about.unit_tests}/models/{family}"
    if not target.folder(folder):
        return []
    templates = {f"{folder}/test_{family}_blockdiag_gqa.py": "blockdiag_gqa/tests/attention.py.j2"}
    cls, _, method = dispatch.function.partition(".")
    like = target.root / dispatch.module.shown
    return rendered(like, templates, module=dispatch.module.name, cls=cls, method=method)
