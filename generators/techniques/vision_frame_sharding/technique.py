"""Encode every image and frame of an Automodel batch once per context-parallel group, and gather the features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import AddField, AddImport, AddText, Edit, FamilyPlan, Row
from skillgen.techniques.shared import vendoring
from skillgen.techniques.vision_frame_sharding import NAME
from skillgen.techniques.vision_frame_sharding import before_forward as frames_before_forward
from skillgen.techniques.vision_frame_sharding import sites as frame_sites

if TYPE_CHECKING:
    from skillgen.kernel.target import Target
    from skillgen.techniques.shared.adapter import FrameSite

DISTRIBUTED = "components/distributed"
TEMPLATES = "vision_frame_sharding"
GUIDES = ("docs/guides/vlm", "fern/versions/nightly/pages/guides/vlm")
RESULTS = "## Training Results"  # what a guide ends with


def rows(target: Target) -> list[Row]:
    """The verdict on every family of the target."""
    return frame_sites.classify(target, technique=NAME)


def plan(target: Target, family: str, options: Mapping[str, Any]) -> FamilyPlan:
    """The edits that give one family the technique; the caller has checked that the family is plannable."""
    from skillgen.kernel.render import sections

    site, _ = frame_sites.find_site(target, family)
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
    notes = () if site.tests_root else ("no-test-tree",)
    return FamilyPlan(NAME, family, tuple(edits), notes, site.layout.verified)


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
    return frames_before_forward.trains(site) if asked is None else asked


def _capability(site: FrameSite) -> Edit:
    """What tells the recipe that the model can be sharded."""
    code = "supports_cp_vision_frame_sharding: bool = True\n"
    return AddField(path=site.path, cls=f"{site.adapter.cls}.ModelCapabilities", code=code)


def _shared(site: FrameSite, trainable: bool) -> list[Edit]:
    """Configuration and recipes: part of every family's patch, there once."""
    if not site.in_forward:
        return frames_before_forward.shared_edits(site, trainable=trainable)
    from skillgen.techniques.vision_frame_sharding import in_forward as frames_in_forward

    return list(frames_in_forward.shared_edits(site))


def _runtime(site: FrameSite, trainable: bool) -> list[Edit]:
    from skillgen.kernel.render import render
    from skillgen.kernel.resources import runtime_sources

    folder = f"{site.package}/{DISTRIBUTED}"
    glue = render(f"{TEMPLATES}/glue.py.j2", in_forward=site.in_forward, trainable=trainable)
    files = {f"{folder}/vision_frame_sharding.py": glue}
    for name, source in runtime_sources(without=("images",)).items():
        files[f"{folder}/vision_sharding/{name}"] = vendoring.one_line_below_imports(source)
    return list(vendoring.add_files(_header(site), files))


def _tests(site: FrameSite, trainable: bool) -> list[Edit]:
    from skillgen.kernel.render import render

    if not site.tests_root:
        return []
    family, units = site.adapter.family, f"{site.tests_root}/unit_tests"
    wanted = {
        f"{units}/distributed/test_vision_frame_sharding.py": "runtime.py.j2",
        f"{units}/models/{family}/test_{family}_vision_frame_sharding.py": site.layout.tests or f"{family}.py.j2",
    }
    if site.in_forward:
        wanted[f"{units}/recipes/test_vlm_kd_frame_sharding.py"] = "kd.py.j2"
    facts = {"site": site, "in_forward": site.in_forward, "trainable": trainable}
    files = {path: render(f"{TEMPLATES}/tests/{template}", **facts) for path, template in wanted.items()}
    return list(vendoring.add_files(_header(site), files))


def _example(site: FrameSite, trainable: bool) -> list[Edit]:
    """A recipe that uses the policy, with the command of its A/B run."""
    from skillgen.kernel.render import render

    if not (site.examples_root and site.layout.example):
        return []
    path = f"{site.examples_root}/{site.layout.example}"
    recipe = render(f"{TEMPLATES}/recipe.yaml.j2", path=path, trainable=trainable)
    return list(vendoring.add_files(_header(site), {path: recipe}))


def _docs(site: FrameSite, trainable: bool) -> list[Edit]:
    """A section in every guide to the model; those of released versions are left alone."""
    from skillgen.kernel.render import render

    root, stem, found = site.target.root, site.adapter.docs, []
    for folder in GUIDES if stem and site.docs_root else ():
        for page in sorted((root / folder).glob(f"{stem}.md*")):
            lines = page.read_text(encoding="utf-8").splitlines()
            before = RESULTS if RESULTS in lines else None
            text = render(f"{TEMPLATES}/docs.md.j2", site=site, in_forward=site.in_forward, trainable=trainable)
            found.append(AddText(path=page.relative_to(root).as_posix(), text=text, before=before))
    return list(found)


def _header(site: FrameSite) -> str:
    return vendoring.header(site.target.package / f"{DISTRIBUTED}/config.py")
