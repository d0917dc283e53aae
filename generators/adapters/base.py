"""What is known of one model family, as data; and a place in a target where it was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from skillgen.model import Edit, Outcome

if TYPE_CHECKING:
    from skillgen.target import Target

Unit = Literal["image", "temporal-patch", "frame-pair", "row", "tubelet", "tile", "unknown"]
Form = Literal["image-batch", "grid-rows", "packed-patches", "image-list", "user-defined"]


class Place(NamedTuple):
    """A class in a file, the path relative to the package."""

    path: str
    cls: str


class Call(NamedTuple):
    """A call by its dotted name, in a method of the model class."""

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
