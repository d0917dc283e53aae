"""Classification of vision-encoder call sites: adapters say where to look, the structure there says what is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from skillgen.kernel.errors import AnchorDrift, SkillgenError
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.source import Method, Module, Source, SourceSyntaxError, calls, dotted
from skillgen.techniques.shared.adapter import Adapter, Place, Site
from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_dp_over_cp import evidence
from skillgen.techniques.vision_dp_over_cp.defects import EXPLAINED, defects
from skillgen.techniques.vision_dp_over_cp.evidence import Fact

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

TECHNIQUE = "vision-dp-over-cp"
FAMILIES = "skillgen.techniques.vision_dp_over_cp.families"
_MAYBE_ENCODER = re.compile(
    rb"\.\w*(visual|vision_|image_encoder|encode_image|get_image_features|get_video_features)\w*\("
)


def classify(target: Target, *, technique: str = TECHNIQUE) -> list[Row]:
    """One row per family that the target has, then one per class that looks like an encoder's caller."""
    if target.product != "megatron-bridge":
        return []
    source = Source(target.root, target.package)
    rows = []
    for adapter in adapters(FAMILIES):
        row = _row(source, target, adapter, technique)
        if row is not None:
            rows.append(row)
    return rows + list(_candidates(source, target, technique))


def find_site(target: Target, family: str, *, technique: str = TECHNIQUE) -> tuple[Site, Row]:
    """The place and the verdict of one family; raises AnchorDrift where the verdict would be drift."""
    known = {adapter.family: adapter for adapter in adapters(FAMILIES)}
    if family not in known:
        raise SkillgenError("unknown-family", f"no family is called {family!r}", hint=f"one of: {', '.join(known)}")
    found = _examine(Source(target.root, target.package), target, known[family], technique)
    if found is None:
        raise SkillgenError("family-absent", f"{family} is not in this target", where=str(target.root))
    return found


def _row(source: Source, target: Target, adapter: Adapter, technique: str) -> Row | None:
    try:
        found = _examine(source, target, adapter, technique)
    except AnchorDrift as drift:
        notes = (f"sought: {drift.sought}", f"verified: {drift.verified}")
        near = drift.nearest or (drift.where,)
        return Row(technique, adapter.family, Outcome.DRIFT, "anchor-moved", drift.message, near, notes=notes)
    except SourceSyntaxError as error:
        return _broken(technique, adapter.family, error)
    return found[1] if found else None


def _broken(technique: str, family: str, error: SourceSyntaxError) -> Row:
    return Row(technique, family, Outcome.REFUSED, error.code, error.message, (error.where,))


def _examine(source: Source, target: Target, adapter: Adapter, technique: str) -> tuple[Site, Row] | None:
    """The site and its row; None where the target does not have the family."""
    place = _model(source, adapter)
    if place is None:
        return None
    module = source.module(place.path)
    owners = _providers(source, adapter)
    site = _site(source, target, adapter, place, owners)

    def verdict(
        outcome: Outcome, reason: str, detail: str, *facts: Fact, notes: tuple[str, ...] = ()
    ) -> tuple[Site, Row]:
        where = tuple(dict.fromkeys(fact.where for fact in facts))
        notes = (f"unit:{adapter.unit}", f"form:{adapter.form}", *notes)
        notes += () if site.tests_root else ("no-test-tree",)
        plannable = outcome is Outcome.APPLICABLE and adapter.edits is not None
        row = Row(technique, adapter.family, outcome, reason, detail, where, plannable, notes)
        return replace(site, evidence=where), row

    flag = technique.replace("-", "_")
    patch = evidence.import_of(module, "common.vision_sharding")
    uses = [evidence.use_of(module, module.tree, flag), *(evidence.use_of(*owner, flag) for owner in owners)]
    named = [fact for fact in uses if fact]
    degrees = evidence.import_of(module, "common.vision_sharding.tp_dp")
    if degrees and not named:
        detail = "the tower has degrees of its own by vision-tp-dp, which shares its images over CP too"
        return verdict(Outcome.REFUSED, "tower-has-own-degrees", detail, degrees)
    if named and not patch and _has_receipt(target, technique, adapter.family):
        patch = named[0]  # the thin form of our patch calls megatron-core's helpers and imports nothing of ours
    if patch:
        return verdict(Outcome.APPLIED, "patched-by-skillgen", "this family carries our patch", patch, *named)
    if named:
        return verdict(Outcome.UPSTREAM, "upstream-has-it", f"the target has its own `{flag}`", *named)

    cls = module.classes.get(place.cls)
    if cls is None:
        raise _drift(source, adapter, module, f"class {place.cls}", _similar(module, place.cls))
    methods = source.methods(module, cls)
    delegated = _delegation(source, module, cls, methods, adapter)
    if delegated:
        return verdict(Outcome.REFUSED, *delegated)
    encoder = _anchors(source, adapter, module, cls, methods)
    if not owners:
        sought = " or ".join(f"class {provider.cls} in {provider.path}" for provider in adapter.providers)
        raise _drift(source, adapter, module, sought, ())

    for owner in owners:
        guard = evidence.rejects_context_parallelism(source, *owner)
        if guard:
            detail = f"{owner[1].name} raises for every context parallel size above 1"
            return verdict(Outcome.REFUSED, "context-parallel-rejected", detail, guard, *encoder)
    notes = _notes([module, *(where for where, _ in owners)])
    if adapter.attention:
        if adapter.attention not in module.classes:
            near = _similar(module, adapter.attention)
            raise _drift(source, adapter, module, f"class {adapter.attention}", near)
        coupled = evidence.items_coupled(module, module.classes[adapter.attention])
        if coupled:
            detail = "the tower attends over all items of a call without a mask, so a share has other features"
            return verdict(Outcome.REFUSED, "items-attend-to-one-another", detail, coupled, *encoder, notes=notes)
    sharded = evidence.sharded_already(module, cls)
    if sharded:
        method = methods[adapter.calls[0].function]
        faults = defects(source, method, evidence.named_calls(method.node, adapter.calls[0].name))
        detail = "; ".join(
            ["vision work is sharded over context parallel ranks already", *(EXPLAINED[slug] for slug, _ in faults)]
        )
        notes += tuple(f"defect:{slug} {fact.where}" for slug, fact in faults)
        return verdict(
            Outcome.UPGRADE, "sharded-already", detail, *sharded, *(fact for _, fact in faults), notes=notes
        )
    sliced = evidence.slices_after(module, methods, {call.name for call in adapter.calls})
    if sliced is None:
        detail = "nothing slices the sequence for context parallelism after the features are merged in"
        return verdict(Outcome.REFUSED, "no-context-parallel", detail, *encoder, notes=notes)
    detail = f"every context parallel rank encodes every item; {adapter.unit} is the smallest share"
    return verdict(Outcome.APPLICABLE, "replicated-encoder", detail, *encoder, sliced, notes=notes)


def _has_receipt(target: Target, technique: str, family: str) -> bool:
    from skillgen.ledger.receipts import file_name

    return (target.state_dir / file_name((technique, family))).is_file()


def _model(source: Source, adapter: Adapter) -> Place | None:
    """The layout that the target has. A class that lives in another file now is drift, not absence."""
    for place in adapter.models:
        if source.has(place.path):
            return place
    names = {place.cls for place in adapter.models}
    pattern = re.compile(rf"^class ({'|'.join(sorted(names))})\b".encode(), re.MULTILINE)
    for path in _texts(source, pattern):
        module = source.module(path)
        moved = tuple(module.where(node) for name, node in module.classes.items() if name in names)
        sought = " or ".join(f"class {place.cls} in {place.path}" for place in adapter.models)
        raise AnchorDrift(sought, where=source.shown(adapter.models[0].path), verified=adapter.verified, nearest=moved)
    return None


def _texts(source: Source, pattern: re.Pattern[bytes]) -> Iterator[str]:
    return source.files("models", matching=pattern)


def _providers(source: Source, adapter: Adapter) -> list[tuple[Module, ast.ClassDef]]:
    found = []
    for path, name in adapter.providers:
        module = source.module(path) if source.has(path) else None
        if module and name in module.classes:
            found.append((module, module.classes[name]))
    return found


def _site(
    source: Source, target: Target, adapter: Adapter, place: Place, owners: list[tuple[Module, ast.ClassDef]]
) -> Site:
    path = owners[0][0].shown if owners else source.shown(adapter.providers[0].path)
    return Site(
        target=target,
        adapter=adapter,
        model_path=source.shown(place.path),
        cls=place.cls,
        provider_path=path,
        providers=tuple(cls.name for module, cls in owners if module.shown == path),
        other_providers=tuple(Place(module.path, cls.name) for module, cls in owners if module.shown != path),
        tests_root="tests" if (target.root / "tests").is_dir() else None,
        docs_root="docs" if (target.root / "docs").is_dir() else None,
    )


def _delegation(
    source: Source, module: Module, cls: ast.ClassDef, methods: dict[str, Method], adapter: Adapter
) -> tuple[str, str, Fact, *tuple[Fact, ...]] | None:
    """Reason, detail and evidence where the call itself is in megatron-core."""
    for call in adapter.calls:
        method = methods.get(call.function)
        built = evidence.named_calls(method.node, call.name) if method else []
        origin = method.module.origin(built[0].func) if method and built else None
        if method and origin and origin.startswith("megatron.core."):
            detail = f"the encoder is a class given by the user, and megatron-core's {call.name} calls it"
            return "out-of-tree-encoder", detail, Fact(method.module, built[0])
    model = evidence.core_model(source, module, cls, "LLaVAModel")
    handed_on = evidence.forwards_everything(methods)
    inherits = model and any(model.node is base for _, owner in source.lineage(module, cls) for base in owner.bases)
    if model and (handed_on or inherits):
        detail = "forward is megatron-core's LLaVAModel.forward, and so is the encoder call in it"
        return "call-site-in-megatron-core", detail, handed_on or model, model
    return None


def _anchors(
    source: Source, adapter: Adapter, module: Module, cls: ast.ClassDef, methods: dict[str, Method]
) -> list[Fact]:
    """Every call the adapter names, or drift."""
    found = []
    for call in adapter.calls:
        method = methods.get(call.function)
        sought = f"call {call.name} in {cls.name}.{call.function}"
        near = [Fact(module, other) for other in calls(cls) if _resembles(other, call.name)]
        if method is None:
            raise _drift(source, adapter, module, sought, (*near, *_similar(module, call.function)))
        here = evidence.named_calls(method.node, call.name)
        if not here:
            raise _drift(source, adapter, module, sought, (*near, Fact(method.module, method.node)))
        found += [Fact(method.module, node) for node in here]
    return found


def _resembles(call: ast.Call, name: str) -> bool:
    last = (dotted(call.func) or "").rpartition(".")[2]
    return last == name.rpartition(".")[2] or bool(evidence.ENCODER.fullmatch(last.lstrip("_")))


def _similar(module: Module, name: str) -> tuple[Fact, ...]:
    from difflib import get_close_matches

    nodes = {
        node.name: node
        for node in module.nodes
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    }
    return tuple(Fact(module, nodes[match]) for match in get_close_matches(name, nodes, cutoff=0.5))


def _drift(source: Source, adapter: Adapter, module: Module, sought: str, near: tuple[Fact, ...]) -> AnchorDrift:
    nearest = tuple(dict.fromkeys(fact.where for fact in near))[:3]
    return AnchorDrift(sought, where=module.where(), verified=adapter.verified, nearest=nearest)


def _notes(modules: list[Module]) -> tuple[str, ...]:
    """Features around the model that a patch has to live with, where each shows first."""
    notes = []
    for note, name in (("dist-train", "use_dist_train"), ("vision-cuda-graph", "vision_cuda_graph_impl")):
        facts = (evidence.use_of(module, module.tree, name) for module in modules)
        notes += [f"{note} {fact.where}" for fact in facts if fact][:1]
    return tuple(notes)


def _candidates(source: Source, target: Target, technique: str) -> Iterator[Row]:
    """Encoder calls in model files that no adapter knows."""
    known = _known_files()
    for path in _texts(source, _MAYBE_ENCODER):
        family = path.split("/")[1] if path.count("/") > 1 else path.rpartition("/")[2].removesuffix(".py")
        if path in known or path.endswith("__init__.py"):
            continue
        try:
            module = source.module(path)
        except SourceSyntaxError as error:
            yield _broken(technique, family, error)
            continue
        for cls, facts in evidence.encoder_like(module):
            detail = f"{cls.name} calls what looks like a vision encoder, and no adapter covers it"
            where = tuple(fact.where for fact in facts)
            yield Row(technique, family, Outcome.CANDIDATE, "unknown-encoder-call", detail, where)


@cache
def _known_files() -> frozenset[str]:
    known = adapters(FAMILIES)
    return frozenset(place.path for adapter in known for place in (*adapter.models, *adapter.providers))
