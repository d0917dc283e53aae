"""Give a vision tower its own degrees of tensor and data parallelism over the ranks that share one microbatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillgen.kernel.model import AddText, Edit, FamilyPlan, Row
from skillgen.techniques.shared import vendoring
from skillgen.techniques.vision_tp_dp import NAME
from skillgen.techniques.vision_tp_dp import edits as tp_dp_edits
from skillgen.techniques.vision_tp_dp import sites as tp_dp_sites
from skillgen.techniques.vision_tp_dp.edits import MODULE, RUNTIME
from skillgen.techniques.vision_tp_dp.sites import PARALLEL, VERIFIED, Site

if TYPE_CHECKING:
    from pathlib import Path

    from skillgen.kernel.target import Target

FOLDER = "models/common/vision_sharding"
PAGES = ("qwen3-vl", "qwen35-vl")


def rows(target: Target) -> list[Row]:
    """The verdict on every family of the target."""
    return tp_dp_sites.rows(target)


def plan(target: Target, family: str, options: Mapping[str, Any]) -> FamilyPlan:
    """The edits that give one family the technique; the caller has checked that the family is plannable."""
    from skillgen.kernel.render import sections

    place = tp_dp_sites.site(target, family)
    edits = tp_dp_edits.edits(place, sections("vision_tp_dp/code.py.j2"))
    notes = () if place.folder("tests") else ("no-test-tree",)
    return FamilyPlan(NAME, family, (*edits, *_files(place), *_docs(place)), notes, VERIFIED)


def _files(place: Site) -> list[Edit]:
    """The runtime, shared with vision-dp-over-cp, what is Bridge's own around it, and the tests of both."""
    from skillgen.kernel.render import render
    from skillgen.kernel.resources import runtime_sources

    folder, header = place.shown(FOLDER), vendoring.header(place.target.package / "models/model_provider.py")
    files = {f"{folder}/{name}": source for name, source in runtime_sources(without=("tensors",)).items()}
    files |= {f"{folder}/tp_dp/{name}": source for name, source in runtime_sources(package="tp_dp").items()}
    files[place.shown(PARALLEL)] = render("vision_tp_dp/parallel.py.j2")
    if place.folder("tests"):
        models, facts = "tests/unit_tests/models", {"module": MODULE, "runtime_module": RUNTIME}
        files[f"{models}/common/test_vision_sharding.py"] = render("vision_dp_over_cp/tests/runtime.py.j2", **facts)
        files[f"{models}/common/test_vision_sharding_tp_dp.py"] = render("vision_tp_dp/tests/runtime.py.j2", **facts)
        files[f"{models}/qwen_vl/test_vision_tp_dp.py"] = render("vision_tp_dp/tests/qwen3_vl.py.j2", **facts)
    return list(vendoring.add_files(header, files))


def _docs(place: Site) -> list[AddText]:
    """A section in every documentation tree that describes the models; superseded versions are left alone."""
    from skillgen.kernel.render import render

    root = place.target.root
    if not place.folder("docs"):
        return []
    frozen = root / "docs/fern/versions"
    pages = sorted(page for name in PAGES for page in (root / "docs").rglob(f"{name}.md*"))
    kept = [page for page in pages if frozen not in page.parents or frozen / "nightly" in page.parents]
    text = render("vision_tp_dp/docs.md.j2")
    return [AddText(path=page.relative_to(root).as_posix(), text=text, before=_before(page)) for page in kept]


def _before(page: Path) -> str | None:
    heading = "## Examples"
    return heading if heading in page.read_text(encoding="utf-8").splitlines() else None
