"""Videos as packed pixel rows with a grid, the frames of which see each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from .forms import Call, Units, as_list
from .grid_rows import GridRows
from .plan import Segment


@dataclass(frozen=True, kw_only=True)
class GridItems(GridRows):
    """As `GridRows`, but an item is a unit, never cut."""

    def units(self, call: Call) -> Units:
        """One run per item."""
        return super().units({self.grid: [(1, t * h, w) for t, h, w in as_list(call[self.grid])]})

    def take(self, call: Call, share: Sequence[Segment], placeholders: Sequence[str]) -> Call:
        """Cut out a share, and append placeholders."""
        items = as_list(call[self.grid])
        return super().take(call, [segment._replace(count=items[segment.run][0]) for segment in share], placeholders)
