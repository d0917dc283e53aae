"""What a technique offers to choose from; light, since `--help` asks every technique."""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """A choice that `plan` and `apply` take: without it an earlier one stays. (True, False) makes a switch."""

    values: tuple[object, ...]
    help: str
