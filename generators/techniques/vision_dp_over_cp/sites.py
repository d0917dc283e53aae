"""Classification of vision-encoder call sites: adapters say where to look, the structure there says what is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache

from skillgen.kernel.errors import AnchorDrift
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.source import Method, Module, Source
from skillgen.techniques.shared import verdicts
from skillgen.techniques.shared.adapter import Place
from skillgen.techniques.shared.evidence import (
    Fact,
    encoder_like,
    import_of,
    named_calls,
    resembling,
    similar,
    use_of,
)
from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_dp_over_cp import NAME as TECHNIQUE
from skillgen.techniques.vision_dp_over_cp import evidence
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter, Site
from skillgen.techniques.vision_dp_over_cp.defects import EXPLAINED, defects

FLAG = TECHNIQUE.replace("-", "_")
FAMILIES = "skillgen.techniques.vision_dp_over_cp.families"
_ENCODERS = (b"visual", b"vision_", b"image_encoder", b"encode_image", b"get_image_features", b"get_video_features")
_MAYBE_ENCODER = re.compile(rb"\.\w*(" + b"|".join(_ENCODERS) + rb")\w*\(")


def classify(source: Source) -> list[Row]:
    """One row per family that the target has, then one per class that looks like an encoder's caller."""
    rows = []
    for adapter in adapters(FAMILIES):
        rows += verdicts.folded(TECHNIQUE, adapter.family, _rows, source, adapter)
    for path in _unknown_files(source):
        family = path.split("/")[1] if path.count("/") > 1 else path.rpartition("/")[2].removesuffix(".py")
        rows += verdicts.folded(TECHNIQUE, family, _candidates, source, path, family)
    return rows


def find_site(source: Source, family: str) -> tuple[Site, Row]:
    """The place and the verdict of one family; raises AnchorDrift where the verdict would be drift."""
    known = {adapter.family: adapter for adapter in adapters(FAMILIES)}
    if family not in known:
        raise verdicts.unknown(family, [*known])
    found = _examine(source, known[family])
    if found is None:
        raise verdicts.absent(source.target, f"{family} is not in this target")
    return found


def _rows(source: Source, adapter: Adapter) -> list[Row]:
    found = _examine(source, adapter)
    return [found[1]] if found else []


def _examine(source: Source, adapter: Adapter) -> tuple[Site, Row] | None:
    """The site and its row; None where the target does not have the family."""
    place = _model(source, adapter)
    if place is None:
        return None
    module = source.module(place.path)
    owners = _providers(source, adapter)
    site = _site(source, adapter, place, owners)

    def verdict(
        outcome: Outcome, reason: str, detail: str, *facts: Fact, notes: tuple[str, ...] = ()
    ) -> tuple[Site, Row]:
        notes = (f"unit:{adapter.unit}", f"form:{adapter.form}", *notes, *verdicts.test_tree_notes(source.target))
        plannable = outcome is Outcome.APPLICABLE and adapter.edits is not None
        where = verdicts.places(facts)
        return site, Row(TECHNIQUE, adapter.family, outcome, reason, detail, where, plannable, notes)

    # the second is how an older patch imports it
    patch = import_of(module, "common.vision_sharding.api") or import_of(module, "common.vision_sharding")
    uses = [use_of(module, module.tree, FLAG), *(use_of(*owner, FLAG) for owner in owners)]
    named = [fact for fact in uses if fact]
    degrees = import_of(module, "common.vision_sharding.tp_dp")
    if degrees and not named:
        detail = "the tower has degrees of its own by vision-tp-dp, which shares its images over CP too"
        return verdict(Outcome.REFUSED, "tower-has-own-degrees", detail, degrees)
    if named and not patch and verdicts.has_receipt(source.target, TECHNIQUE, adapter.family):
        patch = named[0]  # the thin form of our patch calls megatron-core's helpers and imports nothing of ours
    if patch:
        return verdict(*verdicts.OURS, "this family carries our patch", patch, *named)
    if named:
        return verdict(*verdicts.THEIRS, f"the target has its own `{FLAG}`", *named)

    cls = module.classes.get(place.cls)
    if cls is None:
        raise _drift(adapter, module, f"class {place.cls}", similar(module, place.cls))
    methods = source.methods(module, cls)
    delegated = _delegation(source, module, cls, methods, adapter)
    if delegated:
        return verdict(Outcome.REFUSED, *delegated)
    encoder = _anchors(adapter, module, cls, methods)
    if not owners:
        sought = " or ".join(f"class {provider.cls} in {provider.path}" for provider in adapter.providers)
        raise _drift(adapter, module, sought)

    for owner in owners:
        guard = evidence.rejects_context_parallelism(source, *owner)
        if guard:
            detail = f"{owner[1].name} raises for every context parallel size above 1"
            return verdict(Outcome.REFUSED, "context-parallel-rejected", detail, guard, *encoder)
    notes = _notes([module, *(where for where, _ in owners)])
    if adapter.attention:
        if adapter.attention not in module.classes:
            near = similar(module, adapter.attention)
            raise _drift(adapter, module, f"class {adapter.attention}", near)
        coupled = evidence.items_coupled(module, module.classes[adapter.attention])
        if coupled:
            detail = "the tower attends over all items of a call without a mask, so a share has other features"
            return verdict(Outcome.REFUSED, "items-attend-to-one-another", detail, coupled, *encoder, notes=notes)
    sharded = evidence.sharded_already(module, cls)
    if sharded:
        method = methods[adapter.calls[0].function]
        faults = defects(source, method, named_calls(method.node, adapter.calls[0].name))
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


def _model(source: Source, adapter: Adapter) -> Place | None:
    """The layout that the target has. A class that lives in another file now is drift, not absence."""
    for place in adapter.models:
        if source.has(place.path):
            return place
    names = {place.cls for place in adapter.models}
    pattern = re.compile(rf"^class ({'|'.join(sorted(names))})\b".encode(), re.MULTILINE)
    for path in source.files("models", matching=pattern):
        module = source.module(path)
        moved = tuple(module.where(node) for name, node in module.classes.items() if name in names)
        sought = " or ".join(f"class {place.cls} in {place.path}" for place in adapter.models)
        raise verdicts.drift(sought, source.shown(adapter.models[0].path), adapter.verified, moved)
    return None


def _providers(source: Source, adapter: Adapter) -> list[tuple[Module, ast.ClassDef]]:
    found = []
    for path, name in adapter.providers:
        module = source.module(path) if source.has(path) else None
        if module and name in module.classes:
            found.append((module, module.classes[name]))
    return found


def _site(source: Source, adapter: Adapter, place: Place, owners: list[tuple[Module, ast.ClassDef]]) -> Site:
    path = owners[0][0].shown if owners else source.shown(adapter.providers[0].path)
    return Site(
        source=source,
        adapter=adapter,
        model_path=source.shown(place.path),
        cls=place.cls,
        provider_path=path,
        providers=tuple(cls.name for module, cls in owners if module.shown == path),
        other_providers=tuple(Place(module.path, cls.name) for module, cls in owners if module.shown != path),
    )


def _delegation(
    source: Source, module: Module, cls: ast.ClassDef, methods: dict[str, Method], adapter: Adapter
) -> tuple[str, str, Fact, *tuple[Fact, ...]] | None:
    """Reason, detail and evidence where the call itself is in megatron-core."""
    for call in adapter.calls:
        method = methods.get(call.function)
        built = named_calls(method.node, call.name) if method else []
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


def _anchors(adapter: Adapter, module: Module, cls: ast.ClassDef, methods: dict[str, Method]) -> list[Fact]:
    """Every call the adapter names, or drift."""
    found = []
    for call in adapter.calls:
        method = methods.get(call.function)
        here = named_calls(method.node, call.name) if method else []
        if method is None or not here:
            near = resembling(module, cls, call.name)
            near += [Fact(method.module, method.node)] if method else similar(module, call.function)
            raise _drift(adapter, module, f"call {call.name} in {cls.name}.{call.function}", near)
        found += [Fact(method.module, node) for node in here]
    return found


def _drift(adapter: Adapter, module: Module, sought: str, near: Iterable[Fact] = ()) -> AnchorDrift:
    return verdicts.drift(sought, module.where(), adapter.verified, near)


def _notes(modules: list[Module]) -> tuple[str, ...]:
    """Features around the model that a patch has to live with, where each shows first."""
    notes = []
    for note, name in (("dist-train", "use_dist_train"), ("vision-cuda-graph", "vision_cuda_graph_impl")):
        facts = (use_of(module, module.tree, name) for module in modules)
        notes += [f"{note} {fact.where}" for fact in facts if fact][:1]
    return tuple(notes)


def _unknown_files(source: Source) -> Iterator[str]:
    """Model files with what may be an encoder call that no adapter knows."""
    known = _known_files()
    for path in source.files("models"):
        if path not in known and not path.endswith("__init__.py"):
            text = source.text(path)
            if any(word in text for word in _ENCODERS) and _MAYBE_ENCODER.search(text):  # the latter is slow
                yield path


def _candidates(source: Source, path: str, family: str) -> Iterator[Row]:
    for cls, facts in encoder_like(source.module(path)):
        detail = f"{cls.name} calls what looks like a vision encoder, and no adapter covers it"
        where = verdicts.places(facts)
        yield Row(TECHNIQUE, family, Outcome.CANDIDATE, "unknown-encoder-call", detail, where)


@cache
def _known_files() -> frozenset[str]:
    known = adapters(FAMILIES)
    return frozenset(place.path for adapter in known for place in (*adapter.models, *adapter.providers))
