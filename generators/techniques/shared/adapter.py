"""Words with which an adapter says what is known of one model family, as data."""

from __future__ import annotations

from typing import Literal, NamedTuple

from skillgen.kernel.model import Outcome

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
