"""Checks: what the target's configuration refuses before a launch, and what it lets pass."""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
import warnings
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from skillgen.evals.hierarchical_cp.families import Part
from skillgen.evals.hierarchical_cp.paths import BridgeHarness, config_of
from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.kernel.harness import Skip
from skillgen.evals.kernel.surroundings import bridge_module
from skillgen.evals.kernel.tables import Shape

SIZES, TYPE = "hierarchical_context_parallel_sizes", "cp_comm_type"
HIERARCHICAL = "a2a+p2p"
GOOD: dict[str, dict[str, Any]] = {
    "[2,2]": {},
    "[4,1]: one level, a warning": {SIZES: [4, 1], "warns": True},
    "every other layer": {TYPE: ["p2p", HIERARCHICAL]},
    "a list with None": {TYPE: [None, HIERARCHICAL]},
    "p2p without sizes": {TYPE: "p2p", SIZES: None},
    "p2p, CP 1": {TYPE: "p2p", SIZES: None, "context_parallel_size": 1},
    "Transformer Engine 1.12.0": {"engine": "1.12.0"},
    "decentralized groups": {"decentralized": True},
}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no sizes": ({SIZES: None}, SIZES),
    "product 8, CP 4": ({SIZES: [2, 4]}, SIZES),
    "one size": ({SIZES: [4]}, SIZES),
    "three sizes": ({SIZES: [2, 2, 1]}, SIZES),
    "no size at all": ({SIZES: []}, SIZES),
    "negative sizes": ({SIZES: [-2, -2]}, SIZES),
    "sizes with p2p": ({TYPE: "p2p"}, SIZES),
    "KV heads not divisible by the inner size": ({"num_query_groups": 1}, "num_query_groups"),
    "heads not divisible by the inner size": ({"num_attention_heads": 9, "num_query_groups": 3}, "heads"),
    "Transformer Engine 1.11.0": ({"engine": "1.11.0"}, "1.12"),
    "sliding window": ({"window_size": (8, 0)}, "window_size"),
    "softmax off by one": ({"softmax_type": "off-by-one"}, "softmax_type"),
    "attention bias": ({"position_embedding_type": "relative"}, "position_embedding_type"),
}


def cases(context: Context, part: Part) -> Iterator[Case]:
    """One case for what must pass, one for each thing that must not."""
    yield Case("checks", "sound configurations pass", partial(_sound, context))
    for name, (changes, named) in BAD.items():
        yield Case("checks", f"refused: {name}", partial(_refused, context, changes, named))


def recipes(context: Context, part: Part) -> Iterator[Case]:
    """Each recipe that asks for a2a+p2p: its settings pass the checks, and its levels are two."""
    source = context.harness.source
    assert source is not None
    for path in sorted((source / "megatron" / "bridge" / "recipes").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body if HIERARCHICAL in text else ():
            if isinstance(node, ast.FunctionDef) and HIERARCHICAL in (ast.get_source_segment(text, node) or ""):
                yield Case("recipe", node.name, partial(_recipe, context, settings(node)))


def settings(function: ast.FunctionDef) -> dict[str, dict[str, Any]]:
    """What a recipe sets to a literal, by section and option: `cfg.model.x = 1`."""
    found: dict[str, dict[str, Any]] = {}
    for node in function.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Attribute):
            with contextlib.suppress(ValueError):
                found.setdefault(target.value.attr, {})[target.attr] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
    return found


def container(context: Context) -> Any:
    """The target's ConfigContainer."""
    if not isinstance(context.harness, BridgeHarness):
        raise Skip("megatron-core has no configuration container")
    return bridge_module(context.harness, "training.config").ConfigContainer


def validators(config: Any) -> list[str]:
    """The methods about CP that `validate` calls."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(config.validate)))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = [f.attr for f in calls if isinstance(f, ast.Attribute) and ast.unparse(f.value) == "self"]
    named = [name for name in dict.fromkeys(called) if name in vars(config)]
    return [name for name in named if SIZES in inspect.getsource(getattr(config, name))]


def judge(context: Context, changes: dict[str, Any]) -> tuple[str, list[str]]:
    """(What the checks said, "" for nothing; their warnings)."""
    config = container(context)
    module = bridge_module(context.harness, "training.config")
    changes = dict(changes)
    engine, decentralized = changes.pop("engine", None), changes.pop("decentralized", False)
    changes.pop("warns", None)
    shape = Shape(1, 2, 2)
    fields = {"position_embedding_type": "rope", "seq_length": 32, "vocab_size": 64}
    stub = object.__new__(config)
    stub.model = SimpleNamespace(**{**vars(config_of(shape)), **fields, **changes})
    stub.dist = SimpleNamespace(use_decentralized_pg=decentralized, use_gloo_process_groups=False)
    stub.dataset = SimpleNamespace()
    found = validators(config)
    if not found:
        return "", []
    before = getattr(module, "get_te_version", None)
    if engine is not None and before is not None:
        from packaging.version import Version

        module.get_te_version = lambda: Version(engine)  # type: ignore[attr-defined]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for name in found:
                getattr(stub, name)()
        return "", [str(warning.message) for warning in caught]
    except (ValueError, AssertionError) as error:
        return str(error) or type(error).__name__, []
    finally:
        if before is not None:
            module.get_te_version = before  # type: ignore[attr-defined]


def _sound(context: Context) -> Result:
    checks: dict[str, tuple[float, float]] = {}
    for name, changes in GOOD.items():
        said, warned = judge(context, changes)
        checks[f"{name}: {said[:120] or 'refused'}"] = (float(bool(said)), 0)
        if changes.get("warns") and context.rank == 0:
            checks[f"{name}: none came"] = (float(not warned), 0)
    return Result(checks=checks)


def _refused(context: Context, changes: dict[str, Any], named: str) -> Result:
    """By a message that names the option."""
    said, _ = judge(context, changes)
    wrong = {"it passed": not said, f"the message does not name {named}": named not in said}
    checks = {name: (float(value), 0.0) for name, value in wrong.items()}
    return Result(checks=checks, numbers={"message": said[:200]})


def _recipe(context: Context, found: dict[str, dict[str, Any]]) -> Result:
    """On top of the defaults of the eval's tiny model; the recipe's base is not built."""
    model = found.get("model", {})
    asked = {TYPE: None, SIZES: None, "context_parallel_size": 1} | model
    said, warned = judge(context, {**asked, "decentralized": found.get("dist", {}).get("use_decentralized_pg", False)})
    wrong = {
        f"the checks say: {said[:120]}": bool(said),
        f"the checks warn: {' '.join(warned)[:120]}": bool(warned),
        "it does not ask for a2a+p2p on two levels": HIERARCHICAL not in asked[TYPE] or len(asked[SIZES] or ()) != 2,
    }
    return Result(checks={what: (float(value), 0.0) for what, value in wrong.items()}, numbers={"sets": found})
