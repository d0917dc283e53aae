"""Give a vision tower its own degrees of tensor and data parallelism over the ranks that share one microbatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillgen.kernel.model import Edit, FamilyPlan, Row
from skillgen.techniques.shared import pages, vendoring
from skillgen.techniques.vision_tp_dp import NAME

if TYPE_CHECKING:
    from skillgen.kernel.source import Source
    from skillgen.techniques.vision_tp_dp.sites import Site

FOLDER = "models/common/vision_sharding"
PAGES = ("qwen3-vl", "qwen35-vl")


def rows(source: Source) -> list[Row]:
    """The verdict on every family of the target."""
    from skillgen.techniques.vision_tp_dp import sites

    return sites.rows(source)


def plan(source: Source, family: str, options: Mapping[str, Any]) -> FamilyPlan:
    """The edits that give one family the technique; the caller has checked that the family is plannable."""
    from skillgen.kernel.render import render, sections
    from skillgen.techniques.vision_tp_dp import edits, sites

    place = sites.site(source, family)
    text = render("vision_tp_dp/docs.md.j2")
    docs = pages.add_section(place.target, pages.guides(place.target, *PAGES), text, before="## Examples")
    patch: list[Edit] = [*edits.edits(place, sections("vision_tp_dp/code.py.j2")), *_files(place), *docs]
    return FamilyPlan(NAME, family, tuple(patch), verified=sites.VERIFIED)


def _files(place: Site) -> list[Edit]:
    """The runtime, shared with vision-dp-over-cp, what is Bridge's own around it, and the tests of both."""
    from skillgen.kernel.render import render
    from skillgen.kernel.resources import runtime_sources
    from skillgen.techniques.vision_tp_dp.edits import MODULE, RUNTIME
    from skillgen.techniques.vision_tp_dp.sites import PARALLEL

    folder, header = place.shown(FOLDER), vendoring.header(place.target.package / "models/model_provider.py")
    files = {f"{folder}/{name}": source for name, source in runtime_sources(("api", "grid_rows")).items()}
    files |= {f"{folder}/tp_dp/{name}": source for name, source in runtime_sources((), package="tp_dp").items()}
    files[place.shown(PARALLEL)] = render("vision_tp_dp/parallel.py.j2")
    if place.tests_root:
        models, facts = f"{place.unit_tests}/models", {"module": MODULE, "runtime_module": RUNTIME}
        files[f"{models}/common/test_vision_sharding.py"] = render("vision_dp_over_cp/tests/runtime.py.j2", **facts)
        files[f"{models}/common/test_vision_sharding_tp_dp.py"] = render("vision_tp_dp/tests/runtime.py.j2", **facts)
        files[f"{models}/qwen_vl/test_vision_tp_dp.py"] = render("vision_tp_dp/tests/qwen3_vl.py.j2", **facts)
    return list(vendoring.add_files(header, files))
