"""The table of a case that compares two implementations: a line per measure, a column per arm."""

from __future__ import annotations

from typing import Any

ARMS = ("ours", "upstream")


def table(row: dict[str, Any]) -> list[list[str]]:
    """Head and lines; a name holds a measure and an arm, in either order. The highest of the ranks counts."""
    lines: dict[str, dict[str, str]] = {}
    for name, values in row["numbers"].items():
        words = name.split(", ")
        arm = next((word for word in words if word in ARMS), ARMS[0])
        measure = ", ".join(word for word in words if word != arm)
        lines.setdefault(measure, {})[arm] = shown([value for value in values if value is not None])
    return [["", *ARMS], *([measure, *(cells.get(arm, "") for arm in ARMS)] for measure, cells in lines.items())]


def shown(values: list[Any]) -> str:
    """The highest number, or the first of what is no number."""
    if not values:
        return ""
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        return f"{max(numbers):.4g}"
    first = values[0]
    return ", ".join(shown([item]) for item in first) if isinstance(first, list) else str(first)
