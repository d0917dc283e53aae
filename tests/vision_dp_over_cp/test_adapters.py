"""Each adapter's own example gets its verdict, and every anchor of it is noticed when it moves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skillgen.engine.scan import scan
from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_dp_over_cp import sites as vision_sites
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

BRIDGE = adapters(vision_sites.FAMILIES)
DELEGATED = {"call-site-in-megatron-core", "out-of-tree-encoder"}
EXAMPLES = [
    pytest.param(adapter, example, id=f"{adapter.family}-{example.outcome.value}")
    for adapter in BRIDGE
    for example in adapter.examples
]
ANCHORS = [
    pytest.param(adapter, call, id=f"{adapter.family}-{call.function}-{call.name}")
    for adapter in BRIDGE
    for call in adapter.calls
    if adapter.examples[0].reason not in DELEGATED
]


def files(adapter: Adapter, example: Example) -> dict[str, str]:
    provider = example.provider or f"class {adapter.providers[0].cls}:\n    pass\n"
    path = adapter.providers[0].path
    return {path: provider, adapter.models[0].path: example.model}


def test_module_is_named_after_its_family() -> None:
    from skillgen.techniques.vision_dp_over_cp import families as package

    names = {path.stem for path in Path(package.__path__[0]).glob("[a-z]*.py")}
    assert names == {adapter.family for adapter in BRIDGE}


@pytest.mark.parametrize("adapter", BRIDGE, ids=lambda adapter: adapter.family)
def test_has_an_example(adapter: Adapter) -> None:
    assert adapter.examples


@pytest.mark.parametrize(("adapter", "example"), EXAMPLES)
def test_example(verdict, adapter: Adapter, example: Example) -> None:
    row = verdict(files(adapter, example))
    assert (row.family, row.outcome, row.reason) == (adapter.family, example.outcome, example.reason)
    assert row.plannable == (adapter.edits is not None and example.outcome is Outcome.APPLICABLE)
    assert row.evidence and all(re.fullmatch(r"megatron/bridge/models/\S+\.py:\d+", where) for where in row.evidence)


@pytest.mark.parametrize(("adapter", "call"), ANCHORS)
def test_moved_call_is_drift(verdict, adapter: Adapter, call: Call) -> None:
    head, method, tail = adapter.examples[0].model.rpartition(f"def {call.function}(")
    body, other, rest = tail.partition("\n    def ")
    moved = head + method + body.replace(call.name + "(", call.name + "_moved(") + other + rest
    assert moved != adapter.examples[0].model
    row = verdict(files(adapter, adapter.examples[0]._replace(model=moved)))
    assert (row.outcome, row.reason) == (Outcome.DRIFT, "anchor-moved")
    assert any(f"call {call.name} in" in note for note in row.notes)
    assert f"verified: {adapter.verified}" in row.notes


@pytest.mark.parametrize("adapter", BRIDGE, ids=lambda adapter: adapter.family)
def test_renamed_class_is_drift(verdict, adapter: Adapter) -> None:
    name = adapter.models[0].cls
    example = adapter.examples[0]
    source = files(adapter, example._replace(model=re.sub(rf"\b{name}\b", f"{name}V2", example.model)))
    provider = adapter.providers[0].path
    source[provider] = source[provider].replace(f"class {name}:", f"class {name}V2:")
    row = verdict(source)
    assert (row.outcome, row.reason) == (Outcome.DRIFT, "anchor-moved")
    line = 1 + source[adapter.models[0].path].partition(f"class {name}V2:")[0].count("\n")
    assert f"megatron/bridge/{adapter.models[0].path}:{line}" in row.evidence


@pytest.mark.parametrize("adapter", BRIDGE, ids=lambda adapter: adapter.family)
def test_class_in_another_file_is_drift(verdict, adapter: Adapter) -> None:
    place = adapter.models[0]
    moved = f"{place.path.rpartition('/')[0]}/somewhere_else.py"
    row = verdict({moved: f"class {place.cls}:\n    pass\n"})
    assert (row.family, row.outcome, row.evidence) == (adapter.family, Outcome.DRIFT, (f"megatron/bridge/{moved}:1",))


@pytest.mark.parametrize(
    "adapter", [a for a in BRIDGE if a.examples[0].reason not in DELEGATED], ids=lambda a: a.family
)
def test_renamed_provider_is_drift(verdict, adapter: Adapter) -> None:
    row = verdict(files(adapter, adapter.examples[0]._replace(provider="class Other:\n    pass\n")))
    assert row.outcome is Outcome.DRIFT
    assert adapter.providers[0].cls in row.detail


def test_nothing_of_a_family_gives_no_row(tree) -> None:
    assert (
        scan(
            technique=vision_sites.TECHNIQUE,
            target=tree({"models/gpt_provider.py": "class GPTModelProvider:\n    pass\n"}),
        )
        == []
    )
