"""The patch of each part of hierarchical context parallelism: its edits, the files that it brings, its notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillgen.kernel.model import Edit, FamilyPlan
from skillgen.techniques.hierarchical_cp import NAME, docs, edits, sites
from skillgen.techniques.hierarchical_cp.sites import GROUPS, INITIALIZE, STATE, VERIFIED, Site
from skillgen.techniques.shared import vendoring

if TYPE_CHECKING:
    from skillgen.kernel.source import Source
    from skillgen.kernel.target import Target

TEMPLATES = "hierarchical_cp"


def plan(source: Source, part: str, consumer: str | None) -> FamilyPlan:
    """The edits of one part; without a choice of consumer, as an earlier apply left it."""
    place, target = sites.site(source, part), source.target
    consumer = consumer or _consumer_in_place(target)
    changes, files, notes = PARTS[part](place, consumer)
    header = vendoring.header(target.package / (STATE if part == "attention" else INITIALIZE))
    tests = f"{target.about.tests}/"
    kept = {path: text for path, text in files.items() if place.tests_root or not path.startswith(tests)}
    patch: list[Edit] = [*changes, *vendoring.add_files(header, kept), *docs.corrections(place, consumer)]
    return FamilyPlan(NAME, part, tuple(patch), notes, VERIFIED[target.product])


def _consumer_in_place(target: Target) -> str:
    file = target.package / GROUPS
    there = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return "core" if there and "def set_hierarchical_cp_groups" not in there else "bridge"


Parts = tuple[list[Edit], dict[str, str], tuple[str, ...]]


def _groups(place: Site, consumer: str) -> Parts:
    from skillgen.kernel.render import render, sections

    code = sections(f"{TEMPLATES}/code.py.j2", consumer=consumer)
    files = {
        place.shown(GROUPS): render(f"{TEMPLATES}/groups.py.j2", consumer=consumer),
        f"{place.unit_tests}/training/test_hierarchical_cp.py": render(
            f"{TEMPLATES}/tests/groups.py.j2", consumer=consumer, **edits.group_facts(place)
        ),
    }
    notes = ("needs-patched-megatron-core",) if consumer == "core" else ()
    return edits.groups(place, code, consumer), files, notes


def _checks(place: Site, consumer: str) -> Parts:
    from skillgen.kernel.render import render, sections

    facts = edits.check_facts(place)
    patch = edits.checks(place, sections(f"{TEMPLATES}/checks.py.j2", **facts))
    test = render(f"{TEMPLATES}/tests/checks.py.j2", **facts)
    return patch, {f"{place.unit_tests}/training/test_hierarchical_cp_config.py": test}, ()


def _recipe(place: Site, consumer: str) -> Parts:
    from skillgen.kernel.render import render

    path, base, name = sites.recipe_layout(place)
    module = place.module_of(place.shown(path))
    code = render(f"{TEMPLATES}/recipe.py.j2", base=base, name=name)
    test = render(f"{TEMPLATES}/tests/functional.py.j2", module=module, name=name, **edits.functional_facts(place))
    files = {f"{place.functional_tests}/test_hierarchical_cp.py": test}
    if place.four_gpu_launches:
        launch = f"{place.four_gpu_launches}/L0_Launch_training_hierarchical_cp.sh"
        files[launch] = render(f"{TEMPLATES}/launch.sh.j2", folder=place.functional_tests)
    return edits.recipe(place, code), files, ("decentralized-path-needs-groups",)


def _attention(place: Site, consumer: str) -> Parts:
    from skillgen.kernel.render import render, sections

    test = f"{place.unit_tests}/extension/test_hierarchical_context_parallel.py"
    files = {test: render(f"{TEMPLATES}/tests/core.py.j2")}
    return edits.attention(place, sections(f"{TEMPLATES}/core.py.j2")), files, ()


PARTS = {"groups": _groups, "checks": _checks, "recipe": _recipe, "attention": _attention}
