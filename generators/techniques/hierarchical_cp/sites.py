"""What a target has of hierarchical context parallelism: the verdict on each part of the cure."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from skillgen.kernel.errors import AnchorDrift
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.source import Function, Source, dotted, walk
from skillgen.techniques.hierarchical_cp import NAME as TECHNIQUE
from skillgen.techniques.shared import verdicts
from skillgen.techniques.shared.evidence import named_calls, similar
from skillgen.techniques.shared.site import TargetSite

VERIFIED = {
    "megatron-bridge": "0.3.1, 0.4.2, 0.6.2 and main at 067f987df",
    "megatron-core": "0.16.1, 0.19.2 and main at d98e8a64d",
}
INITIALIZE, CONFIG, PROVIDER = "training/initialize.py", "training/config.py", "models/model_provider.py"
REBINDING, GROUPS = "training/eval_context_parallel_rebinding.py", "training/utils/hierarchical_cp.py"
ENGINE, STATE = "extensions/transformer_engine.py", "parallel_state.py"
RECIPES = (  # layouts of the recipes of Qwen3, newest first: the file, its base recipe, ours
    (
        "recipes/qwen/h100/qwen3.py",
        "qwen3_600m_pretrain_1gpu_h100_bf16_config",
        "qwen3_600m_pretrain_4gpu_h100_bf16_hcp_config",
    ),
    ("recipes/qwen/qwen3.py", "qwen3_600m_pretrain_config", "qwen3_600m_pretrain_hcp_config"),
)
CHECKS, CORE_CHECK = "_validate_hierarchical_context_parallel", "TEDotProductAttention"
UNTESTED = ("attention",)  # parts whose target is used as a release, without tests, as a rule
PARTS = {"megatron-bridge": ("groups", "checks", "recipe"), "megatron-core": ("attention",)}


@dataclass(frozen=True, kw_only=True)
class Site(TargetSite):
    """A part's place in one target, as it is without our patch of that part."""

    part: str
    texts: dict[str, bytes | None]  # what our patch of this part would leave on a revert, by path from the root

    def read(self, path: str) -> str:
        """A text by its path from the target's root, empty where there is none."""
        if path in self.texts:
            return (self.texts[path] or b"").decode()
        file = self.target.root / path
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def text(self, path: str) -> str:
        """A text of the package, empty where there is none."""
        return self.read(self.shown(path))

    def function(self, path: str, name: str) -> Function:
        """A top-level function or `Class.method`, or drift."""
        if not self.source.has(path):
            raise self.drift(path, f"file {path}")
        module = self.source.module(path)
        cls, _, last = name.rpartition(".")
        owner = module.classes.get(cls) if cls else module.tree
        found = [node for node in (owner.body if owner else ()) if isinstance(node, Function) and node.name == last]
        if not found:
            near = (fact.where for fact in similar(module, last))
            raise self.drift(path, f"function {name}", *near)
        return found[0]

    def defines(self, path: str, name: str) -> bool:
        try:
            return bool(self.function(path, name))
        except AnchorDrift:
            return False

    def drift(self, path: str, sought: str, *near: str) -> AnchorDrift:
        return verdicts.drift(sought, self.shown(path), VERIFIED[self.target.product], near)

    @cached_property
    def functional_tests(self) -> str:
        """The folder of functional tests on training."""
        grouped = "tests/functional_tests/test_groups/training"
        return grouped if (self.target.root / grouped).is_dir() else "tests/functional_tests/training"

    @property
    def four_gpu_launches(self) -> str:
        """The folder of scripts that CI launches, where some of them ask for four GPUs."""
        folder = self.target.root / "tests/functional_tests/launch_scripts/gb200/active"
        scripts = filter(Path.is_file, sorted(folder.glob("*.sh")))
        asks = any(b"# GPU_COUNT=x4" in path.read_bytes() for path in scripts)
        return folder.relative_to(self.target.root).as_posix() if asks else ""


def site(source: Source, part: str, *, pristine: bool = True) -> Site:
    """The place of one part; `pristine` reads past our own earlier patch of it."""
    texts: dict[str, bytes | None] = {}
    if pristine:
        from skillgen import ledger

        texts = dict(ledger.without(source.target, TECHNIQUE, part))
    package = source.shown("")
    inner = {
        path.removeprefix(package): text
        for path, text in texts.items()
        if text is not None and path.startswith(package)
    }
    return Site(source=source.under(inner) if inner else source, part=part, texts=texts)


def rows(source: Source) -> list[Row]:
    """One row per part of the cure that belongs into this product."""
    found = []
    for part in PARTS.get(source.target.product, ()):
        found += verdicts.folded(TECHNIQUE, part, _rows, site(source, part, pristine=False))
    return found


def _rows(place: Site) -> list[Row]:
    outcome, reason, detail, evidence = VERDICTS[place.part](place)
    plannable = outcome in (Outcome.APPLICABLE, Outcome.UPGRADE) and reason != "groups-unread"
    notes = verdicts.test_tree_notes(place.target) if place.part not in UNTESTED else ()
    return [Row(TECHNIQUE, place.part, outcome, reason, detail, evidence, plannable, notes)]


Verdict = tuple[Outcome, str, str, tuple[str, ...]]


def _groups(place: Site) -> Verdict:
    function = place.function(INITIALIZE, "_create_pg_collection")
    module = place.source.module(INITIALIZE)
    made = named_calls(function, "ProcessGroupCollection")
    fields = [keyword for call in made for keyword in call.keywords if keyword.arg == "hcp"]
    if len(fields) != 1:
        raise place.drift(INITIALIZE, "keyword hcp of ProcessGroupCollection in _create_pg_collection")
    where = module.where(fields[0].value)
    if any(origin.endswith("hierarchical_cp.create_hierarchical_cp_groups") for origin in module.imports.values()):
        return *verdicts.OURS, "the decentralized path makes both levels of groups", (where,)
    if not (isinstance(fields[0].value, ast.Constant) and fields[0].value.value is None):
        if "_HIERARCHICAL_CONTEXT_PARALLEL_GROUPS" in place.text(INITIALIZE):
            return *verdicts.THEIRS, "the target makes the groups and hands them on", (where,)
        detail = "the target fills hcp, which released megatron-core does not read: attention runs without CP"
        return Outcome.UPGRADE, "groups-unread", detail, (where,)
    guard = _raises(function, "NotImplementedError")
    if guard:
        detail = "decentralized process groups refuse hierarchical_context_parallel_sizes"
        return Outcome.APPLICABLE, "decentralized-refuses", detail, (module.where(guard), where)
    detail = "decentralized process groups ignore the sizes: attention runs without context parallelism, silently"
    return Outcome.APPLICABLE, "decentralized-ignores", detail, (where,)


def _raises(function: Function, name: str) -> ast.AST | None:
    raised = [node for node in walk(function) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    return next((node for node in raised if isinstance(node.exc, ast.Call) and dotted(node.exc.func) == name), None)


def _checks(place: Site) -> Verdict:
    validate = place.function(CONFIG, "ConfigContainer.validate")
    module = place.source.module(CONFIG)
    if place.defines(CONFIG, f"ConfigContainer.{CHECKS}"):
        where = module.where(place.function(CONFIG, f"ConfigContainer.{CHECKS}"))
        return *verdicts.OURS, "the configuration is checked before launch", (where,)
    if place.defines(CONFIG, "ConfigContainer._validate_cp_comm_type"):
        where = module.where(place.function(CONFIG, "ConfigContainer._validate_cp_comm_type"))
        detail = "sizes and their product are checked; their number, heads and what attention refuses are not"
        return Outcome.UPGRADE, "incomplete-validation", detail, (where,)
    detail = "only the sequence length is checked: a wrong configuration turns context parallelism off silently"
    return Outcome.APPLICABLE, "no-validation", detail, (module.where(validate),)


def _recipe(place: Site) -> Verdict:
    for path in place.source.files("recipes"):
        text = place.text(path)
        if "a2a+p2p" in text:
            line = text[: text.index("a2a+p2p")].count("\n") + 1
            ours = any(path == known and f"def {name}(" in text for known, _, name in RECIPES)
            found = verdicts.OURS if ours else verdicts.THEIRS
            return *found, "a recipe uses a2a+p2p", (f"{place.shown(path)}:{line}",)
    path, base, _ = recipe_layout(place)
    where = place.source.module(path).where(place.function(path, base))
    return Outcome.APPLICABLE, "no-recipe", "no recipe uses a2a+p2p", (where,)


def recipe_layout(place: Site) -> tuple[str, str, str]:
    """The file with the recipes of Qwen3, the one that ours derives from, and the name of ours."""
    for path, base, name in RECIPES:
        if place.source.has(path) and place.defines(path, base):
            return path, base, name
    raise place.drift(RECIPES[0][0], f"recipe {RECIPES[0][1]} or {RECIPES[1][1]}")


def _attention(place: Site) -> Verdict:
    function = place.function(ENGINE, "TEDotProductAttention.__init__")
    place.function(STATE, "destroy_model_parallel")
    module = place.source.module(ENGINE)
    read = [node for node in walk(function) if isinstance(node, ast.Attribute) and dotted(node) == "pg_collection.hcp"]
    if read:
        ours = "needs pg_collection.hcp to be the inner and the outer" in place.text(ENGINE)
        found = verdicts.OURS if ours else verdicts.THEIRS
        return *found, "attention reads pg_collection.hcp", (module.where(read[0]),)
    name = "get_hierarchical_context_parallel_groups"
    found_calls = named_calls(function, name)
    if not found_calls:
        raise place.drift(ENGINE, f"call {name} in TEDotProductAttention.__init__", module.where(function))
    detail = "attention takes the groups from parallel_state alone: a filled pg_collection.hcp turns CP off silently"
    return Outcome.APPLICABLE, "collection-unread", detail, (module.where(found_calls[-1]),)


VERDICTS = {"groups": _groups, "checks": _checks, "recipe": _recipe, "attention": _attention}
