"""Encode every image once per context-parallel group instead of once per rank, and gather the projected features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import AddField, AddFile, AddImport, Edit, FamilyPlan, Row
from skillgen.techniques.shared import pages, vendoring
from skillgen.techniques.vision_dp_over_cp import NAME

if TYPE_CHECKING:
    from pathlib import Path

    from skillgen.kernel.source import Source
    from skillgen.techniques.vision_dp_over_cp.adapter import Site

RUNTIME = "models/common/vision_sharding"
RUNTIME_MODULE = f"megatron.bridge.{RUNTIME.replace('/', '.')}"
MCORE_HELPERS = (
    "megatron.core.models.multimodal.context_parallel",
    ("gather_from_context_parallel_ranks_dynamic_res", "split_to_context_parallel_ranks_dynamic_res"),
)

FIELD = """\
# Encode each image on one context-parallel rank instead of on all; takes effect when context_parallel_size > 1.
vision_dp_over_cp: bool = {default}
"""


def rows(source: Source) -> list[Row]:
    """The verdict on every family of the target."""
    from skillgen.techniques.vision_dp_over_cp import sites

    return sites.classify(source)


def plan(source: Source, family: str, options: Mapping[str, Any]) -> FamilyPlan:
    """The edits that give one family the technique; the caller has checked that the family is plannable."""
    from skillgen.kernel.render import sections
    from skillgen.techniques.vision_dp_over_cp import sites

    site, _ = sites.find_site(source, family)
    splitter = options.get("splitter") or _splitter_in_place(site)
    if splitter not in site.adapter.splitters:
        raise SkillgenError(
            "no-such-splitter",
            f"--splitter {splitter} is not for {family}: it can use {', '.join(site.adapter.splitters)}",
            hint="megatron-core's helpers take packed patches only",
        )
    assert site.adapter.edits is not None
    code = sections(f"vision_dp_over_cp/sites/{family}.py.j2", splitter=splitter)
    edits: list[Edit] = [*_fields(site), *site.adapter.edits(site, code)]
    if splitter == "mcore":
        edits.append(AddImport(path=site.model_path, module=MCORE_HELPERS[0], names=MCORE_HELPERS[1]))
    else:
        for module, names in (("api", ("ShardedEncoder", "is_enabled")), _form(site), ("plan", ("cost_alpha",))):
            edits.append(AddImport(path=site.model_path, module=f"{RUNTIME_MODULE}.{module}", names=names))
        edits += _runtime(site)
    edits += [*_tests(site, splitter), *_docs(site, splitter)]
    return FamilyPlan(NAME, family, tuple(edits), verified=site.adapter.verified)


def _splitter_in_place(site: Site) -> str:
    """What an earlier apply chose, so that a plain one does not change it."""
    text = (site.target.root / site.model_path).read_text(encoding="utf-8", errors="replace")
    return "mcore" if "mcore" in site.adapter.splitters and MCORE_HELPERS[1][1] in text else "balanced"


def _fields(site: Site) -> list[Edit]:
    code = FIELD.format(default=site.adapter.default)
    places = [(site.provider_path, cls) for cls in site.providers]
    places += [(site.shown(place.path), place.cls) for place in site.other_providers]
    return [AddField(path=path, cls=cls, code=code) for path, cls in places]


def _form(site: Site) -> tuple[str, tuple[str, ...]]:
    """The runtime's module, and its class, for the form in which the family takes images."""
    words = site.adapter.form.split("-")
    return "_".join(words), ("".join(map(str.capitalize, words)),)


def _runtime(site: Site) -> list[Edit]:
    """What the site uses of the runtime, as it stands, under the target's copyright header."""
    from skillgen.kernel.resources import runtime_sources

    folder, header = site.shown(RUNTIME), vendoring.header(_like(site))
    edits: list[Edit] = []
    package = AddFile(path=f"{folder.rpartition('/')[0]}/__init__.py", content=header.rstrip("\n") + "\n")
    there = site.target.root / package.path
    # one with this very content may be ours, of an older patch that this one replaces
    if not there.parent.is_dir() or (there.is_file() and there.read_text(encoding="utf-8") == package.content):
        edits.append(package)
    files = {f"{folder}/{name}": source for name, source in runtime_sources(("api", _form(site)[0])).items()}
    return [*edits, *vendoring.add_files(header, files)]


def _tests(site: Site, splitter: str) -> list[AddFile]:
    if not site.tests_root:
        return []
    models, family = f"{site.unit_tests}/models", site.adapter.family
    wanted = {f"{models}/{site.adapter.tests}/test_{family}_vision_dp_over_cp.py": f"{family}.py.j2"}
    if splitter == "balanced":
        wanted[f"{models}/common/test_vision_sharding.py"] = "runtime.py.j2"
    return vendoring.rendered(
        _like(site),
        {path: f"vision_dp_over_cp/tests/{template}" for path, template in wanted.items()},
        site=site,
        splitter=splitter,
        model_module=site.module_of(site.model_path),
        provider_module=site.module_of(site.provider_path),
        runtime_module=RUNTIME_MODULE,
    )


def _docs(site: Site, splitter: str) -> list[Edit]:
    """A section in every documentation tree that describes the model."""
    from skillgen.kernel.render import render

    if not (found := pages.guides(site.target, site.adapter.docs)):
        return []
    text = render("vision_dp_over_cp/docs.md.j2", site=site, splitter=splitter)
    return [*pages.add_section(site.target, found, text, before="## Examples")]


def _like(site: Site) -> Path:
    """The source whose header new files get."""
    return site.target.package / "models/model_provider.py"
