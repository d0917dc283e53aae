"""What a Megatron-Bridge has of a vision tower with degrees of its own: the verdict on Qwen3-VL."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property

from skillgen.kernel.errors import AnchorDrift
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.source import Function, Module, Source, calls, dotted, walk
from skillgen.techniques.shared import verdicts
from skillgen.techniques.shared.evidence import last_name, named_calls
from skillgen.techniques.shared.site import TargetSite
from skillgen.techniques.vision_tp_dp import NAME as TECHNIQUE

FAMILY = "qwen3_vl"
VERIFIED = "0.6.2 and main at 067f987df"
PARALLEL = "models/common/vision_parallel.py"  # ours
MODEL, MODEL_CLASS = "models/qwen_vl/modelling_qwen3_vl/model.py", "Qwen3VLModel"
PROVIDERS = {
    "models/qwen_vl/qwen3_vl_provider.py": ("Qwen3VLModelProvider", "Qwen3VLMoEModelProvider"),
    "models/qwen_vl/qwen35_vl_provider.py": ("Qwen35VLModelProvider", "Qwen35VLMoEModelProvider"),
}
REGISTRY, MAPPING = "models/conversion/mapping_registry.py", "models/conversion/param_mapping.py"
BRIDGE = "models/conversion/model_bridge.py"
SETUP, CONFIG, LOAD = "training/setup.py", "training/config.py", "training/model_load_save.py"
MAKER = PARALLEL.removesuffix(".py").replace("/", ".") + ".make_vision_groups"

Verdict = tuple[Outcome, str, str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Site(TargetSite):
    """Qwen3-VL's place in one target."""

    @cached_property
    def providers(self) -> dict[str, list[str]]:
        """The provider classes that are there, by file."""
        found = {path: re.findall(r"^class (\w+)", self.text(path), re.MULTILINE) for path in PROVIDERS}
        there = {path: [cls for cls in PROVIDERS[path] if cls in classes] for path, classes in found.items()}
        return {path: classes for path, classes in there.items() if classes}

    def drift(self, path: str, sought: str, *near: str) -> AnchorDrift:
        return verdicts.drift(sought, self.shown(path), VERIFIED, near)


def site(source: Source, family: str = FAMILY) -> Site:
    """The place of a family."""
    if family != FAMILY:
        raise verdicts.unknown(family, [FAMILY])
    return Site(source=source)


def rows(source: Source) -> list[Row]:
    """One row, where the target has the model."""
    return verdicts.folded(TECHNIQUE, FAMILY, _rows, site(source))


def _rows(place: Site) -> list[Row]:
    found = _verdict(place)
    if found is None:
        return []
    notes = verdicts.test_tree_notes(place.target)
    return [Row(TECHNIQUE, FAMILY, *found, plannable=found[0] is Outcome.APPLICABLE, notes=notes)]


def _verdict(place: Site) -> Verdict | None:
    if not place.source.has(MODEL):
        moved = re.compile(rf"^class {MODEL_CLASS}\b".encode(), re.MULTILINE)
        found = [place.source.module(path) for path in place.source.files("models", matching=moved)]
        if found:
            raise place.drift(MODEL, f"class {MODEL_CLASS} in {MODEL}", *map(_class, found))
        return None
    module = place.source.module(MODEL)
    init, forward = (_method(place, module, name) for name in ("__init__", "forward"))
    made = [call for call in calls(init) if module.origin(call.func) == f"megatron.bridge.{MAKER}"]
    if made:
        detail = "the vision tower has process groups of its own"
        return *verdicts.OURS, detail, (module.where(made[0]),)
    encoder = named_calls(forward, "self.vision_model")
    if not encoder:
        raise place.drift(MODEL, f"call self.vision_model in {MODEL_CLASS}.forward", module.where(forward))
    for path in place.providers:
        line = _line(place.text(path), r"^    vision_tp_size: ")
        if line:
            detail = "the provider has degrees for the vision tower"
            return *verdicts.THEIRS, detail, (f"{place.shown(path)}:{line}",)
    where = tuple(module.where(call) for call in encoder)
    built = [call for call in calls(init) if last_name(call.func) == "_from_config"]
    if built:
        detail = "the vision tower is Hugging Face's and knows no tensor parallelism: each rank holds all of it"
        return Outcome.REFUSED, "tower-without-tensor-parallelism", detail, (module.where(built[0]), *where)
    tied = _tied(place, module, init)
    if not _line(place.text(REGISTRY), r"^    def _prepare_mapping\("):
        detail = (
            "conversion takes every weight's process groups from parallel_state: another vision TP cannot be loaded"
        )
        evidence = [
            f"{place.shown(path)}:{line}"
            for path, pattern in ((REGISTRY, r"\.resolve\(match"), (MAPPING, r"_tp_group = mpu\."))
            if (line := _line(place.text(path), pattern))
        ]
        return Outcome.REFUSED, "conversion-with-global-groups", detail, (*evidence, tied)
    if not place.providers:
        near = [f"{place.shown(path)}:{line}" for path in PROVIDERS if (line := _line(place.text(path), r"^class "))]
        raise place.drift(next(iter(PROVIDERS)), "class " + " or ".join(sum(PROVIDERS.values(), ())), *near)
    detail = "the vision tower has the text model's tensor parallel group, and every rank takes part in every image"
    return Outcome.APPLICABLE, "tied-to-the-text-model", detail, (*where, tied)


def _tied(place: Site, module: Module, init: Function) -> str:
    """Where the tower is built with the text model's collection."""
    found = [node for node in walk(init) if isinstance(node, ast.keyword) and node.arg == "pg_collection"]
    names = [call for call in calls(init) if (dotted(call.func) or "").endswith("VisionModel")]
    tied = [key for key in found if any(key in call.keywords for call in names)]
    if len(tied) != 1:
        raise place.drift(MODEL, "keyword pg_collection of Qwen3VLVisionModel", module.where(init))
    return module.where(tied[0].value)


def _method(place: Site, module: Module, name: str) -> Function:
    owner = module.classes.get(MODEL_CLASS)
    found = [node for node in (owner.body if owner else ()) if isinstance(node, Function) and node.name == name]
    if not found:
        near = (module.where(owner),) if owner else tuple(map(module.where, module.classes.values()))
        raise place.drift(MODEL, f"method {MODEL_CLASS}.{name}", *near)
    return found[0]


def _class(module: Module) -> str:
    return module.where(module.classes[MODEL_CLASS])


def _line(text: str, *patterns: str) -> int:
    """The number of the first line that one of the patterns is found in; 0 for none."""
    found = [match.start() for pattern in patterns if (match := re.search(pattern, text, re.MULTILINE))]
    return text.count("\n", 0, min(found)) + 1 if found else 0
