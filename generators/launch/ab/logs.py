"""Step time, peak memory and losses in the log of a training run, as the products print them."""

from __future__ import annotations

from collections.abc import Iterable

from skillgen.kernel.product import Recipes, products
from skillgen.kernel.trainer_log import Log


def trainers() -> dict[str, Recipes]:
    """The products that train, by the name that a reader knows."""
    return {known.title: known.recipes for known in products().values() if known.recipes}


def read(lines: Iterable[str]) -> Log:
    """The log of a run; `product` is empty if no line is a step of a known trainer."""
    log, readers = Log(), [how.read for how in trainers().values()]
    for line in lines:
        any(read(log, line) for read in readers)
    return log
