"""Encode every image and frame of an Automodel batch once per context-parallel group, and gather the features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import AddField, AddFile, AddImport, Edit, FamilyPlan, Row
from skillgen.techniques.shared import pages, vendoring
from skillgen.techniques.vision_frame_sharding import NAME

if TYPE_CHECKING:
    from pathlib import Path

    from skillgen.kernel.source import Source
    from skillgen.techniques.vision_frame_sharding.adapter import FrameSite

DISTRIBUTED = "components/distributed"
TEMPLATES = "vision_frame_sharding"
EXAMPLES = "examples"
RUNTIME = ("grid_items", "padded_patches", "tensor_batch", "thresholds")
GUIDES = ("docs/guides/vlm", "fern/versions/nightly/pages/guides/vlm")
RESULTS = "## Training Results"  # what a guide ends with


def rows(source: Source) -> list[Row]:
    """The verdict on every family of the target."""
    from skillgen.techniques.vision_frame_sharding import sites

    return sites.classify(source)


def plan(source: Source, family: str, options: Mapping[str, Any]) -> FamilyPlan:
    """The edits that give one family the technique; the caller has checked that the family is plannable."""
    from skillgen.kernel.render import sections
    from skillgen.techniques.vision_frame_sharding import sites

    site, _ = sites.find_site(source, family)
    trainable = _trainable(site, options.get("trainable"))
    assert site.layout.edits is not None
    code = sections(f"{TEMPLATES}/sites/{site.layout.code or f'{family}.py.j2'}", in_forward=site.in_forward)
    edits: list[Edit] = [
        AddImport(path=site.path, module="nemo_automodel.components.distributed", names=("vision_frame_sharding",)),
        *([] if site.layout.wired or not site.adapter.capabilities else [_capability(site)]),
        *site.layout.edits(site, code),
        *_shared(site, trainable),
        *_runtime(site, trainable),
        *_tests(site, trainable),
        *_example(site, trainable),
        *_docs(site, trainable),
    ]
    return FamilyPlan(NAME, family, tuple(edits), verified=site.layout.verified)


def _trainable(site: FrameSite, asked: bool | None) -> bool:
    """Whether the embedding call trains; without a choice, as an earlier apply left it."""
    if site.in_forward:
        if asked:
            raise SkillgenError(
                "no-such-option",
                "--trainable is for releases that embed before forward; this one embeds in it, where gradients flow",
                hint="leave the option out",
            )
        return False
    from skillgen.techniques.vision_frame_sharding import before_forward

    return before_forward.trains(site) if asked is None else asked


def _capability(site: FrameSite) -> Edit:
    """What tells the recipe that the model can be sharded."""
    code = "supports_cp_vision_frame_sharding: bool = True\n"
    return AddField(path=site.path, cls=f"{site.adapter.cls}.ModelCapabilities", code=code)


def _shared(site: FrameSite, trainable: bool) -> list[Edit]:
    """Configuration and recipes: part of every family's patch, there once."""
    from skillgen.techniques.vision_frame_sharding import before_forward, in_forward

    if site.in_forward:
        return in_forward.shared_edits(site)
    return before_forward.shared_edits(site, trainable=trainable)


def _runtime(site: FrameSite, trainable: bool) -> list[Edit]:
    from skillgen.kernel.render import render
    from skillgen.kernel.resources import runtime_sources

    folder = f"{site.package}/{DISTRIBUTED}"
    glue = render(f"{TEMPLATES}/glue.py.j2", in_forward=site.in_forward, trainable=trainable)
    files = {f"{folder}/vision_frame_sharding.py": glue}
    for name, source in runtime_sources(RUNTIME).items():
        files[f"{folder}/vision_sharding/{name}"] = vendoring.one_line_below_imports(source)
    return [*vendoring.add_files(vendoring.header(_like(site)), files)]


def _tests(site: FrameSite, trainable: bool) -> list[AddFile]:
    if not site.tests_root:
        return []
    family, units = site.adapter.family, site.unit_tests
    wanted = {
        f"{units}/distributed/test_vision_frame_sharding.py": "runtime.py.j2",
        f"{units}/models/{family}/test_{family}_vision_frame_sharding.py": site.layout.tests or f"{family}.py.j2",
    }
    if site.in_forward:
        wanted[f"{units}/recipes/test_vlm_kd_frame_sharding.py"] = "kd.py.j2"
    templates = {path: f"{TEMPLATES}/tests/{template}" for path, template in wanted.items()}
    return vendoring.rendered(_like(site), templates, site=site, in_forward=site.in_forward, trainable=trainable)


def _example(site: FrameSite, trainable: bool) -> list[AddFile]:
    """A recipe that uses the policy, with the command of its A/B run."""
    if not (site.target.folder(EXAMPLES) and site.layout.example):
        return []
    path = f"{EXAMPLES}/{site.layout.example}"
    return vendoring.rendered(_like(site), {path: f"{TEMPLATES}/recipe.yaml.j2"}, path=path, trainable=trainable)


def _docs(site: FrameSite, trainable: bool) -> list[Edit]:
    """A section in every guide to the model; those of released versions are left alone."""
    from skillgen.kernel.render import render

    root, stem = site.target.root, site.adapter.docs
    found = [page for folder in GUIDES if stem for page in sorted((root / folder).glob(f"{stem}.md*"))]
    if not found:
        return []
    text = render(f"{TEMPLATES}/docs.md.j2", site=site, in_forward=site.in_forward, trainable=trainable)
    return [*pages.add_section(site.target, found, text, before=RESULTS)]


def _like(site: FrameSite) -> Path:
    """The source whose header new files get."""
    return site.target.package / f"{DISTRIBUTED}/config.py"
