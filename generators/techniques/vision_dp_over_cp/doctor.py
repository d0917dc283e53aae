"""What keeps the patch from having an effect, though it is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skillgen.techniques.shared.hooks import Check

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

CP_SIZE = re.compile(r"\bcontext_parallel_size\s*=\s*(\d+)\b")


def checks(target: Target | None, families: Sequence[str]) -> Iterator[Check]:
    """Of the recipes of the patched families, where there is a target."""
    if target is not None:
        for family in families:
            yield from _recipes(target, family)


def _recipes(target: Target, family: str) -> Iterator[Check]:
    """Whether the recipes of a patched family ask for context parallelism, without which the patch does nothing."""
    idle, sizes = "", []
    for path in sorted((target.package / "recipes").rglob(f"{family}.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if match := CP_SIZE.search(line.partition("#")[0]):
                sizes.append(int(match[1]))
                if sizes[-1] == 1:
                    idle = idle or f"{path.relative_to(target.root)}:{number}"
    if sizes:
        ones = sizes.count(1)
        means = f"vision_dp_over_cp does nothing at context_parallel_size 1: raise it, first at {idle}"
        yield Check(f"recipes {family}", "problem" if ones else "ok", f"{ones} of {len(sizes)} with CP 1", means)
