"""Which layouts and modes a world of ranks holds: plain arithmetic, no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Layout:
    """The language model's degrees, in megatron-core's order of ranks: TP fastest, then CP, then DP."""

    tp: int
    cp: int
    dp: int = 1

    @property
    def world(self) -> int:
        """Ranks that share a microbatch."""
        return self.tp * self.cp

    def __str__(self) -> str:
        return f"TP {self.tp} CP {self.cp}" + (f" DP {self.dp}" if self.dp > 1 else "")


@dataclass(frozen=True)
class Mode:
    """A layout and what the patch makes of it; `vision_tp` None is a model whose switch is off."""

    layout: Layout
    vision_tp: int | None = None
    sequence_parallel: bool = False
    blocks: int | None = None  # patches of a block
    recompute: bool = False
    large: bool = False

    @property
    def vision_dp(self) -> int:
        return self.layout.world // (self.vision_tp or 1)

    @property
    def name(self) -> str:
        """`2x4`: vision TP x vision DP."""
        return f"{self.vision_tp}x{self.vision_dp}"

    def __str__(self) -> str:
        words = [f"{self.name} in {self.layout}" if self.vision_tp else f"off in {self.layout}"]
        words += ["sequence parallel"] if self.sequence_parallel else []
        words += [f"blocks of {self.blocks}"] if self.blocks else []
        return ", ".join([*words, *(["recompute"] if self.recompute else [])])


ALONE = Layout(1, 1)
HEADS = 4  # of the vision tower; its TP degree divides them
LANGUAGE_HEADS = 8


def layouts(ranks: int) -> list[Layout]:
    """TP up to 4 and CP up to 4 on all ranks; where few are left over, TP 2 on half of them, with two replicas."""
    found = [Layout(tp, ranks // tp) for tp in (4, 2, 1) if ranks % tp == 0 and ranks // tp <= 4]
    return [*found, *([Layout(2, ranks // 4, 2)] if ranks in (4, 8) else [])]


def modes(layout: Layout) -> Iterator[Mode]:
    """Every vision TP degree that divides the text TP degree and the tower's heads; 1x1 is none."""
    for vision_tp in (1, 2, 4):
        if layout.tp % vision_tp == 0 and layout.world > 1:
            yield Mode(layout, vision_tp)


def off(mode: Mode) -> Mode:
    """The same model on the same ranks, the switch off: the replicated arm."""
    return replace(mode, vision_tp=None, blocks=None)
