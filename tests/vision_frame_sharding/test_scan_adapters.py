"""Each adapter's own example gets its verdict, and every anchor of it is noticed when it moves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skillgen.kernel.errors import AnchorDrift, SkillgenError
from skillgen.kernel.model import Outcome
from skillgen.kernel.source import Source
from skillgen.techniques.shared.adapter import Call, Example
from skillgen.techniques.shared.found import adapters
from skillgen.techniques.vision_frame_sharding import sites as frame_sites
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, Layout
from tests.vision_frame_sharding.frames import IN_FORWARD, only, write

AUTOMODEL = adapters(frame_sites.FAMILIES)
ANCHORED = [adapter for adapter in AUTOMODEL if adapter.layouts]
EXAMPLES = [
    pytest.param(adapter, example, id=f"{adapter.family}-{number}-{example.outcome.value}")
    for adapter in AUTOMODEL
    for number, example in enumerate(adapter.examples)
]


def files(adapter: FrameAdapter, example: Example) -> dict[str, str]:
    own = {IN_FORWARD: ""} if any(layout.wired for layout in adapter.layouts) else {}
    return {adapter.path: example.model, **own}


def layout_of(adapter: FrameAdapter, example: Example) -> Layout:
    """The layout whose calls are all in an example, read as text."""
    for layout in adapter.layouts:
        if all(f"{call.name}(" in example.model for call in layout.calls):
            return layout
    raise AssertionError("an example has the calls of a layout")


def anchored(adapter: FrameAdapter) -> Example:
    """An example that has a layout: neither drift nor a release without the hook."""
    for example in adapter.examples:
        if example.outcome is not Outcome.DRIFT and example.reason != "no-context-parallel-hook":
            return example
    raise AssertionError("an adapter with layouts has an example of one")


def test_module_is_named_after_its_family() -> None:
    from skillgen.techniques.vision_frame_sharding import families as package

    names = {path.stem for path in Path(package.__path__[0]).glob("[a-z]*.py")}
    assert names == {adapter.family for adapter in AUTOMODEL}


@pytest.mark.parametrize("adapter", AUTOMODEL, ids=lambda adapter: adapter.family)
def test_adapter_is_complete(adapter: FrameAdapter) -> None:
    assert adapter.examples
    assert adapter.path.startswith(f"components/models/{adapter.family}/")
    assert adapter.layouts or adapter.refused
    assert not (adapter.refused and any(layout.edits for layout in adapter.layouts))


@pytest.mark.parametrize(("adapter", "example"), EXAMPLES)
def test_example(tmp_path: Path, adapter: FrameAdapter, example: Example) -> None:
    row = only(write(tmp_path, files(adapter, example)))
    assert (row.family, row.outcome, row.reason) == (adapter.family, example.outcome, example.reason)
    assert row.detail and row.evidence
    assert all(re.fullmatch(r"nemo_automodel/components/\S+\.py:\d+", where) for where in row.evidence)
    if row.outcome in (Outcome.APPLICABLE, Outcome.UPGRADE):
        layout = layout_of(adapter, example)
        assert row.plannable == (layout.edits is not None)
        assert {f"unit:{layout.unit}", f"form:{layout.form}"} <= set(row.notes)
        site, again = frame_sites.find_site(Source(write(tmp_path, {})), adapter.family)
        assert (again, site.layout) == (row, layout)
    else:
        assert not row.plannable


@pytest.mark.parametrize(
    ("adapter", "call"),
    [
        pytest.param(adapter, call, id=f"{adapter.family}-{call.function}-{call.name}")
        for adapter in ANCHORED
        for call in layout_of(adapter, anchored(adapter)).calls
    ],
)
def test_moved_call_is_drift(tmp_path: Path, adapter: FrameAdapter, call: Call) -> None:
    example = anchored(adapter)
    owner, _, function = call.function.rpartition(".")
    head, cls, rest = example.model.partition(f"class {owner or adapter.cls}")
    before, method, tail = rest.partition(f"def {function}(")
    body, other, rest = tail.partition("\n    def ")
    moved = head + cls + before + method + body.replace(call.name + "(", call.name + "_moved(") + other + rest
    assert moved != example.model
    row = only(write(tmp_path, files(adapter, example._replace(model=moved))))
    assert (row.outcome, row.reason) == (Outcome.DRIFT, "anchor-moved")
    assert any(f"call {call.name} in {call.function}" in note for note in row.notes)
    with pytest.raises(AnchorDrift):
        frame_sites.find_site(Source(write(tmp_path, {})), adapter.family)


@pytest.mark.parametrize("adapter", ANCHORED, ids=lambda adapter: adapter.family)
def test_renamed_class_is_drift(tmp_path: Path, adapter: FrameAdapter) -> None:
    source = re.sub(rf"\b{adapter.cls}\b", f"{adapter.cls}V2", anchored(adapter).model)
    row = only(write(tmp_path, files(adapter, anchored(adapter)._replace(model=source))))
    assert (row.outcome, row.reason) == (Outcome.DRIFT, "anchor-moved")
    line = 1 + re.split(rf"class {adapter.cls}V2\b", source)[0].count("\n")
    assert f"nemo_automodel/{adapter.path}:{line}" in row.evidence


@pytest.mark.parametrize("adapter", AUTOMODEL, ids=lambda adapter: adapter.family)
def test_class_in_another_file_is_drift(tmp_path: Path, adapter: FrameAdapter) -> None:
    moved = f"{adapter.path.rpartition('/')[0]}/somewhere_else.py"
    row = only(write(tmp_path, {moved: f"class {adapter.cls}:\n    pass\n"}))
    assert (row.family, row.outcome, row.evidence) == (adapter.family, Outcome.DRIFT, (f"nemo_automodel/{moved}:1",))


@pytest.mark.parametrize("adapter", ANCHORED, ids=lambda adapter: adapter.family)
def test_without_the_hook_it_is_refused(tmp_path: Path, adapter: FrameAdapter) -> None:
    model = anchored(adapter).model.replace("prepare_model_inputs_for_cp", "prepare_inputs")
    row = only(write(tmp_path, files(adapter, anchored(adapter)._replace(model=model))))
    assert (row.outcome, row.reason) == (Outcome.REFUSED, "no-context-parallel-hook")


@pytest.mark.parametrize("adapter", ANCHORED, ids=lambda adapter: adapter.family)
def test_our_import_means_applied(tmp_path: Path, adapter: FrameAdapter) -> None:
    if adapter.refused:
        return
    line = "from nemo_automodel.components.distributed import vision_frame_sharding\n"
    row = only(write(tmp_path, files(adapter, anchored(adapter)._replace(model=line + anchored(adapter).model))))
    assert (row.outcome, row.reason, row.plannable) == (Outcome.APPLIED, "patched-by-skillgen", False)
    assert row.evidence == (f"nemo_automodel/{adapter.path}:1",)


@pytest.mark.parametrize("adapter", [a for a in AUTOMODEL if not a.layouts], ids=lambda adapter: adapter.family)
def test_a_tower_in_a_family_without_one_is_seen(tmp_path: Path, adapter: FrameAdapter) -> None:
    model = f"""
class {adapter.cls}:
    def prepare_model_inputs_for_cp(self, batch): ...
    def forward(self, ids, pixel_values):
        return self.merge(ids, self.visual(pixel_values))
"""
    row = only(write(tmp_path, {adapter.path: model}))
    assert (row.outcome, row.reason) == (Outcome.CANDIDATE, "unknown-encoder-call")


def test_refused_family_has_no_site(tmp_path: Path) -> None:
    adapter = next(a for a in ANCHORED if a.refused)
    target = write(tmp_path, files(adapter, adapter.examples[0]))
    with pytest.raises(SkillgenError) as caught:
        frame_sites.find_site(Source(target), adapter.family)
    assert adapter.refused is not None and caught.value.code == adapter.refused[0]


@pytest.mark.parametrize(("family", "code"), [("nonesuch", "unknown-family"), ("kimi_k3", "family-absent")])
def test_no_site(tmp_path: Path, family: str, code: str) -> None:
    with pytest.raises(SkillgenError) as caught:
        frame_sites.find_site(Source(write(tmp_path, {})), family)
    assert caught.value.code == code
