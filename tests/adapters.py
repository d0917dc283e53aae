"""What the adapters of a technique say of the releases of their product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class Known(Protocol):
    """As much of an adapter as is asked for here."""

    family: str
    seen: Mapping[str, str]


def seen(adapters: Iterable[Known], release: str) -> dict[str, str]:
    """By family: the outcome and the reason that a scan must give on a release, where it has the family."""
    return {
        adapter.family: verdict
        for adapter in adapters
        for verdict, releases in adapter.seen.items()
        if release in releases.split()
    }
