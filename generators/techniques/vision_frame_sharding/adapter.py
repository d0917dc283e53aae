"""What is known of one model family of Automodel, as data; and its place in a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from skillgen.kernel.model import Edit
from skillgen.techniques.shared.adapter import Call, Example, Form, Unit
from skillgen.techniques.shared.site import TargetSite


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One form that a family of Automodel has had: the calls that tell it, and how to patch it."""

    calls: tuple[Call, ...]  # all of them must be there
    unit: Unit
    form: Form
    patched: tuple[Call, ...] = ()  # what tells this layout under our patch, where its functions alone do not
    wired: bool = False  # the target shards here already, in a weaker form
    code: str = ""  # the site's template below templates/vision_frame_sharding/sites, where it is not <family>.py.j2
    verified: str = "0.7.0 and main at 36044ad3d"
    edits: Callable[[FrameSite, Mapping[str, str]], Sequence[Edit]] | None = None  # of a site and its rendered code
    tests: str = ""  # template of the unit tests below templates/vision_frame_sharding/tests; empty: <family>.py.j2
    example: str = ""  # a recipe to add below the target's examples


@dataclass(frozen=True, kw_only=True)
class FrameAdapter:
    """What is known of one family of Automodel. A family that must not be patched has a reason instead of layouts."""

    family: str
    path: str  # of the model file, relative to the package
    cls: str  # the class that has `prepare_model_inputs_for_cp`, or would have it
    layouts: tuple[Layout, ...] = ()  # newest first; the first whose calls are all there is taken
    docs: str = ""  # stem of the target's guide to the model
    capabilities: bool = True  # the class declares its capabilities in a nested class of that name
    refused: tuple[str, str] | None = None  # reason and detail; a layout then only says what proves it, or is missing
    examples: tuple[Example, ...] = ()
    seen: Mapping[str, str] = field(default_factory=dict)  # outcome and reason -> the releases on which scan says so


@dataclass(frozen=True, kw_only=True)
class FrameSite(TargetSite):
    """A frame adapter's place in one target. Paths are posix, relative to the target's root."""

    adapter: FrameAdapter
    layout: Layout
    path: str
    cls: str
    in_forward: bool  # the target embeds in forward and has `cp_vision_frame_shard.py`; else it embeds before it
