"""How far two arms may be apart, relative to the largest value: the only such limits that suites have.

Rounding of a matrix product depends on the processor and on the number of its rows, and a rank's share has fewer rows
than the batch: equal means within these. Equal to the bit is asked of integers, of positions and of copied rows alone.
"""

from __future__ import annotations

import torch

LIMITS = {
    # (computed in, with a part of the target's own code in)
    # 4,500 roundings of 2.2e-16; measured is up to 4e-15
    (torch.float64, torch.float64): 1e-12,
    # norms, pooling, rotary embeddings, a cross entropy in fp32 whatever they are given; where every product of a
    # share is one unit in the last place off, Gemma 4's gradients differ by 1.04e-5
    (torch.float64, torch.float32): 2e-5,
    # 84 roundings of 1.2e-7; measured is up to 1.1e-6, and where every product of a share is one unit off, 2.2e-6
    (torch.float32, torch.float32): 1e-5,
    # where no reference is at hand: what both arms round to 8 bits may come out as neighbours, at most 2**-7 apart
    (torch.float64, torch.bfloat16): 2**-7,
    (torch.bfloat16, torch.bfloat16): 2**-7,
}


def of(dtype: torch.dtype, part: torch.dtype | None = None) -> float:
    """The limit for arms that compute in `dtype`; in `part` where the code does so in a part, whatever it is given."""
    return LIMITS[dtype, part or dtype]


def twice(error: float) -> float:
    """The limit in half precision: twice the plain arm's own error against a reference in fp32 or finer."""
    return 2 * error + of(torch.float32)


def after(steps: int, dtype: torch.dtype, part: torch.dtype | None = None) -> float:
    """The limit after steps of training: each adds its rounding to what came before, as a random walk does."""
    return of(dtype, part) * float(steps) ** 0.5
