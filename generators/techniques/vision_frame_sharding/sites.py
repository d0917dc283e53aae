"""Classification of vision encoding in Automodel: what each family's code says about sharding its frames."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from skillgen.kernel.errors import AnchorDrift, SkillgenError
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.source import Method, Module, Source
from skillgen.techniques.shared import verdicts
from skillgen.techniques.shared.evidence import Fact, import_of, resembling, similar, use_of
from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_frame_sharding import NAME as TECHNIQUE
from skillgen.techniques.vision_frame_sharding import evidence
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, FrameSite, Layout

FAMILIES = "skillgen.techniques.vision_frame_sharding.families"
MODELS = "components/models"
VERIFIED = "0.7.0 and main at 36044ad3d"
_MEDIA = re.compile(
    rb"pixel_values|vision_(tower|model|encoder)\b|\.visual\b|vit_model|get_image_features"
    rb"|from transformers[\w.]* import[^)\n]*(\([^)]*)?ForConditionalGeneration"
)
_HOOK = re.compile(rb"def " + evidence.HOOK.encode() + rb"\b")
_VISION_CONFIG = re.compile(rb"\bvision_config\b")


def classify(source: Source) -> list[Row]:
    """One row per model folder that owns a vision tower or calls one, in the order of their names."""
    tree = _Tree(source)
    known = {adapter.family: adapter for adapter in adapters(FAMILIES)}
    rows = []
    for family in sorted({*known, *tree.folders}):
        rows += verdicts.folded(TECHNIQUE, family, tree.rows, family, known.get(family))
    return rows


def find_site(source: Source, family: str) -> tuple[FrameSite, Row]:
    """The place and the verdict of one family; raises AnchorDrift where the verdict would be drift."""
    known = {adapter.family: adapter for adapter in adapters(FAMILIES)}
    if family not in known:
        raise verdicts.unknown(family, [*known])
    found = _Tree(source).known(known[family])
    if found is None:
        raise verdicts.absent(source.target, f"{family} is not in this target")
    if found[0] is None:
        message, where = f"{family} cannot be patched: {found[1].detail}", str(source.target.root)
        raise SkillgenError(found[1].reason, message, where=where)
    return found[0], found[1]


@dataclass(frozen=True)
class _Tree:
    """One target while it is being read."""

    source: Source

    @cached_property
    def folders(self) -> dict[str, list[str]]:
        """The files of each model folder that have to do with images, or with a vision configuration and the hook."""
        media, configured, hooked = defaultdict(list), defaultdict(list), set()
        for path in self.source.files(MODELS):
            parts = path.removeprefix(MODELS + "/").split("/")
            if len(parts) > 1 and parts[0] != "common" and parts[-1] not in ("__init__.py", "state_dict_adapter.py"):
                text = self.source.text(path)
                if _MEDIA.search(text):
                    media[parts[0]].append(path)
                if _VISION_CONFIG.search(text):
                    configured[parts[0]].append(path)
                if _HOOK.search(text):
                    hooked.add(parts[0])
        return {family: configured[family] for family in hooked & configured.keys()} | media

    @cached_property
    def recipes(self) -> list[tuple[str, Fact]]:
        return evidence.about_recipes(self.source)

    def rows(self, family: str, adapter: FrameAdapter | None) -> list[Row]:
        """The row of a family that an adapter knows, or else of its folder."""
        found = self.known(adapter) if adapter else None
        row = found[1] if found else self.unknown(family)
        return [row] if row else []

    def known(self, adapter: FrameAdapter) -> tuple[FrameSite | None, Row] | None:
        """The site of a family, if it can have one, and its row; None where the family is not there."""
        source = self.source
        if not source.has(adapter.path):
            self._moved(adapter)
            return None
        if adapter.refused and not adapter.layouts:
            return None if adapter.family in self.folders else (None, self._without_tower(adapter))
        if adapter.family not in self.folders:
            return None
        module = source.module(adapter.path)
        cls = module.classes.get(adapter.cls)
        if cls is None:
            raise self._drift(adapter, module, f"class {adapter.cls}", similar(module, adapter.cls, ast.ClassDef))
        methods = source.methods(module, cls)
        patch = import_of(module, "components.distributed.vision_frame_sharding")
        hook = evidence.hook(methods)
        if hook is None:
            return None, self._hookless(adapter.family, [(module, cls, Fact(module, cls))])
        layout = self._layout(adapter, module, methods, patched=patch is not None)
        site = self._site(adapter, layout, module)
        if patch:
            return self._verdict(site, *verdicts.OURS, "this family carries our patch", patch)
        found = [evidence.find(module, methods, call) for call in layout.calls]
        facts = [Fact(method.module, node) for method, nodes in found if method for node in nodes]
        if adapter.refused:
            return None, replace(self._verdict(site, Outcome.REFUSED, *adapter.refused, *facts)[1], notes=())
        notes = self._notes(module, cls, hook)
        if layout.wired:
            weak = [pair for method, nodes in found if method for pair in evidence.weaknesses(source, method, nodes)]
            detail = "frames are sharded over context parallel ranks already"
            return self._verdict(
                site, Outcome.UPGRADE, "sharded-already", detail, *facts, hook, weak=weak, notes=notes
            )
        detail = f"every context parallel rank encodes every item; {layout.unit} is the smallest share"
        return self._verdict(site, Outcome.APPLICABLE, "replicated-encoder", detail, *facts, hook, notes=notes)

    def _verdict(
        self,
        site: FrameSite,
        outcome: Outcome,
        reason: str,
        detail: str,
        *facts: Fact,
        weak: list[tuple[str, Fact]] | tuple[()] = (),
        notes: list[tuple[str, Fact]] | tuple[()] = (),
    ) -> tuple[FrameSite, Row]:
        layout, weak = site.layout, list(dict(weak).items())
        where = verdicts.places((*facts, *(fact for _, fact in weak)))
        detail = "; ".join([detail, *(evidence.EXPLAINED[slug] for slug, _ in (*weak, *notes))])
        words = (
            f"unit:{layout.unit}",
            f"form:{layout.form}",
            *(f"defect:{slug} {fact.where}" for slug, fact in weak),
            *(f"{slug} {fact.where}" for slug, fact in notes),
            *verdicts.test_tree_notes(site.target),
        )
        plannable = outcome in (Outcome.APPLICABLE, Outcome.UPGRADE) and layout.edits is not None
        return site, Row(TECHNIQUE, site.adapter.family, outcome, reason, detail, where, plannable, words)

    def _notes(self, module: Module, cls: ast.ClassDef, hook: Fact) -> list[tuple[str, Fact]]:
        takes_grids = any(getattr(arg, "arg", "") == "video_grid_thw" for arg in ast.walk(hook.node))
        missing = evidence.video_grid_missing(self.source) if takes_grids else None
        loop = evidence.loops_over_tower(module, cls)
        ring = evidence.under_dispatcher(module, hook)
        found = {"video-grid-missing": missing, "loop-stays-replicated": loop, "tower-under-cp-dispatcher": ring}
        return [*self.recipes, *((slug, fact) for slug, fact in found.items() if fact)]

    def _layout(self, adapter: FrameAdapter, module: Module, methods: dict[str, Method], *, patched: bool) -> Layout:
        """The newest form whose calls are all there; under our patch, whose functions are."""
        missing = []
        for layout in adapter.layouts:
            lacking = [call for call in layout.calls if not evidence.find(module, methods, call)[1]]
            if not lacking:
                return layout
            missing += lacking[:1]
        for layout in adapter.layouts if patched else ():
            wanted = layout.patched or layout.calls
            found = [evidence.find(module, methods, call) for call in wanted]
            if all(calls_ if layout.patched else method for method, calls_ in found):
                return layout
        sought = " or ".join(f"call {call.name} in {call.function}" for call in missing)
        near = [fact for call in missing for fact in resembling(module, module.tree, call.name)]
        raise self._drift(adapter, module, sought, near)

    def _site(self, adapter: FrameAdapter, layout: Layout, module: Module) -> FrameSite:
        return FrameSite(
            source=self.source,
            adapter=adapter,
            layout=layout,
            path=module.shown,
            cls=adapter.cls,
            in_forward=self.source.has(evidence.OWN),
        )

    def _moved(self, adapter: FrameAdapter) -> None:
        """Raise where the class lives in another file now: that is drift, not absence."""
        pattern = re.compile(rf"^class {adapter.cls}\b".encode(), re.MULTILINE)
        for path in self.source.files(MODELS, matching=pattern):
            module = self.source.module(path)
            near = [Fact(module, module.classes[adapter.cls])]
            sought = f"class {adapter.cls} in {adapter.path}"
            raise verdicts.drift(sought, self.source.shown(adapter.path), VERIFIED, near)

    def _drift(self, adapter: FrameAdapter, module: Module, sought: str, near: Iterable[Fact]) -> AnchorDrift:
        verified = adapter.layouts[0].verified if adapter.layouts else VERIFIED
        return verdicts.drift(sought, module.where(), verified, near)

    def _without_tower(self, adapter: FrameAdapter) -> Row:
        module = self.source.module(adapter.path)
        where = module.where(module.classes.get(adapter.cls))
        assert adapter.refused is not None
        return Row(TECHNIQUE, adapter.family, Outcome.REFUSED, *adapter.refused, (where,))

    def unknown(self, family: str) -> Row | None:
        """The row of a folder that no adapter knows."""
        modules = [self.source.module(path) for path in self.folders.get(family, ())]
        found = [(module, cls, fact) for module in modules for cls, fact in evidence.encoders(module)]
        hooks = [
            hook
            for module in modules
            for cls in module.classes.values()
            for hook in [evidence.hook(self.source.methods(module, cls))]
            if hook
        ]
        if not found:
            configs = [use_of(module, module.tree, "vision_config") for module in modules]
            where = tuple(fact.where for fact in configs if fact)
            detail = "there is a vision configuration, and no module is built from it"
            return Row(TECHNIQUE, family, Outcome.REFUSED, "no-vision-tower", detail, where) if where else None
        if not hooks:
            return self._hookless(family, found)
        where = verdicts.places([*(fact for _, _, fact in found), *hooks])[:4]
        for module in modules:
            rejected = evidence.rejects_images(module)
            if rejected:
                detail = "a batch with images is rejected under context parallelism"
                where = (rejected.where, *where)
                return Row(TECHNIQUE, family, Outcome.REFUSED, "context-parallel-rejects-images", detail, where)
        detail = "a vision encoder is called under context parallelism, and no adapter covers it"
        return Row(TECHNIQUE, family, Outcome.CANDIDATE, "unknown-encoder-call", detail, where)

    def _hookless(self, family: str, found: list[tuple[Module, ast.ClassDef, Fact]]) -> Row:
        denied = [
            fact for module, cls, _ in found for fact in [evidence.denies_context_parallelism(module, cls)] if fact
        ]
        detail = f"its vision inputs have no way into context parallelism: nothing defines `{evidence.HOOK}`"
        detail += ", and it declares supports_cp = False" if denied else ""
        where = verdicts.places([*(fact for _, _, fact in found), *denied])[:4]
        return Row(TECHNIQUE, family, Outcome.REFUSED, "no-context-parallel-hook", detail, where)
