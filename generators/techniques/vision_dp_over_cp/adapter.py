"""What is known of one model family of Megatron-Bridge, as data; and its place in a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from skillgen.kernel.model import Edit
from skillgen.techniques.shared.adapter import Call, Example, Form, Place, Unit
from skillgen.techniques.shared.site import TargetSite


@dataclass(frozen=True, kw_only=True)
class Site(TargetSite):
    """An adapter's place in one target. Paths are posix, relative to the target's root."""

    adapter: Adapter
    model_path: str
    cls: str
    provider_path: str
    providers: tuple[str, ...]  # the adapter's provider classes that are there, in `provider_path`
    other_providers: tuple[Place, ...] = ()  # and in further files, their paths relative to the package


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
