"""Run a2a+p2p attention, all-to-all inside and a ring outside, on both process-group paths, or refuse to start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillgen.kernel.model import Edit, FamilyPlan, Row
from skillgen.techniques.hierarchical_cp import NAME
from skillgen.techniques.hierarchical_cp import docs as hcp_docs
from skillgen.techniques.hierarchical_cp import edits as hcp_edits
from skillgen.techniques.hierarchical_cp import sites as hcp_sites
from skillgen.techniques.hierarchical_cp.sites import GROUPS, INITIALIZE, VERIFIED, Site
from skillgen.techniques.shared import vendoring

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

TEMPLATES = "hierarchical_cp"


def rows(target: Target) -> list[Row]:
    """The verdict on every part of the cure that belongs into this product."""
    return hcp_sites.rows(target)


def plan(target: Target, family: str, options: Mapping[str, Any]) -> FamilyPlan:
    """The edits of one part; the caller has checked that the part is plannable."""
    place = hcp_sites.site(target, family)
    consumer = options.get("consumer") or _consumer_in_place(target)
    edits, files, notes = PARTS[family](place, consumer)
    like = hcp_sites.STATE if family == "attention" else INITIALIZE
    header = vendoring.header(target.package / like)
    kept = {path: text for path, text in files.items() if place.tests_root or not path.startswith("tests/")}
    if not place.tests_root and family != "attention":
        notes = ("no-test-tree", *notes)
    patch: list[Edit] = [*edits, *vendoring.add_files(header, kept), *hcp_docs.corrections(place, consumer)]
    return FamilyPlan(NAME, family, tuple(patch), notes, VERIFIED[target.product])


def _consumer_in_place(target: Target) -> str:
    """What an earlier apply chose, so that a plain one does not change it."""
    file = target.package / GROUPS
    there = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return "core" if there and "def set_hierarchical_cp_groups" not in there else "bridge"


Parts = tuple[list[Edit], dict[str, str], tuple[str, ...]]


def _groups(place: Site, consumer: str) -> Parts:
    from skillgen.kernel.render import render, sections

    code = sections(f"{TEMPLATES}/code.py.j2", consumer=consumer)
    files = {
        place.shown(GROUPS): render(f"{TEMPLATES}/groups.py.j2", consumer=consumer),
        "tests/unit_tests/training/test_hierarchical_cp.py": render(
            f"{TEMPLATES}/tests/groups.py.j2", consumer=consumer, **hcp_edits.group_facts(place)
        ),
    }
    notes = ("needs-patched-megatron-core",) if consumer == "core" else ()
    return hcp_edits.groups(place, code, consumer), files, notes


def _checks(place: Site, consumer: str) -> Parts:
    from skillgen.kernel.render import render, sections

    facts = hcp_edits.check_facts(place)
    edits = hcp_edits.checks(place, sections(f"{TEMPLATES}/checks.py.j2", **facts))
    test = render(f"{TEMPLATES}/tests/checks.py.j2", **facts)
    return edits, {"tests/unit_tests/training/test_hierarchical_cp_config.py": test}, ()


def _recipe(place: Site, consumer: str) -> Parts:
    from skillgen.kernel.render import render

    path, base, name = hcp_sites.recipe_layout(place)
    module = "megatron.bridge." + path.removesuffix(".py").replace("/", ".")
    code = render(f"{TEMPLATES}/recipe.py.j2", base=base, name=name)
    test = render(f"{TEMPLATES}/tests/functional.py.j2", module=module, name=name, **hcp_edits.functional_facts(place))
    files = {f"{place.functional_tests}/test_hierarchical_cp.py": test}
    if place.four_gpu_launches:
        launch = f"{place.four_gpu_launches}/L0_Launch_training_hierarchical_cp.sh"
        files[launch] = render(f"{TEMPLATES}/launch.sh.j2", folder=place.functional_tests)
    return hcp_edits.recipe(place, code), files, ("decentralized-path-needs-groups",)


def _attention(place: Site, consumer: str) -> Parts:
    from skillgen.kernel.render import render, sections

    test = "tests/unit_tests/extension/test_hierarchical_context_parallel.py"
    files = {test: render(f"{TEMPLATES}/tests/core.py.j2")}
    return hcp_edits.attention(place, sections(f"{TEMPLATES}/core.py.j2")), files, ()


PARTS = {"groups": _groups, "checks": _checks, "recipe": _recipe, "attention": _attention}
