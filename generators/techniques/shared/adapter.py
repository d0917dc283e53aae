"""What is known of one model family, as data; and a place in a target where it was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from skillgen.kernel.model import Edit, Outcome

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

Unit = Literal[
    "image", "temporal-patch", "frame", "frame-pair", "frame-group", "entry", "row", "tubelet", "tile", "unknown"
]
Form = Literal[
    "image-batch", "grid-rows", "packed-patches", "padded-patches", "tensor-batch", "image-list", "user-defined"
]


class Place(NamedTuple):
    """A class in a file, the path relative to the package."""

    path: str
    cls: str


class Call(NamedTuple):
    """A call by its dotted name, in a method of the model class; or, in Automodel, in `Class.method` of its file."""

    function: str
    name: str


class Example(NamedTuple):
    """A miniature of the family's files, written from its interface, and the verdict on it."""

    outcome: Outcome
    reason: str
    model: str
    provider: str = ""  # empty: a plain class of the first provider's name


@dataclass(frozen=True, kw_only=True)
class Site:
    """An adapter's place in one target. Paths are posix, relative to the target's root."""

    target: Target
    adapter: Adapter
    model_path: str
    cls: str
    provider_path: str
    providers: tuple[str, ...]  # the adapter's provider classes that are there, in `provider_path`
    other_providers: tuple[Place, ...] = ()  # and in further files, their paths relative to the package
    tests_root: str | None = None
    docs_root: str | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """What is known of one model family: where its encoder is called, and what is independent of what."""

    family: str
    models: tuple[Place, ...]  # layouts of different releases, newest first; one that exists is taken
    calls: tuple[Call, ...]  # the encoder calls, then the calls of the helper around them; all must be there
    providers: tuple[Place, ...]  # provider classes that own the configuration; at least one must be there
    unit: Unit  # the smallest thing a rank may own
    form: Form
    attention: str = ""  # the tower's attention class in the model file, where it must keep items apart by a mask
    verified: str = "0.6.2 and main at 067f987df"
    default: bool = False  # of the configuration field
    splitters: tuple[str, ...] = ("balanced",)
    tests: str = ""  # folder of the target's unit tests, where it is not named after the family
    docs: str = ""  # stem of the target's page on the model
    edits: Callable[[Site, Mapping[str, str]], Sequence[Edit]] | None = None  # of a site and its rendered code
    examples: tuple[Example, ...] = ()
    seen: Mapping[str, str] = field(default_factory=dict)  # outcome and reason -> the releases on which scan says so


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
class FrameSite:
    """A frame adapter's place in one target. Paths are posix, relative to the target's root."""

    target: Target
    adapter: FrameAdapter
    layout: Layout
    path: str
    cls: str
    in_forward: bool  # the target embeds in forward and has `cp_vision_frame_shard.py`; else it embeds before it
    tests_root: str | None = None
    docs_root: str | None = None
    examples_root: str | None = None
    evidence: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        return self.target.package.relative_to(self.target.root).as_posix()
