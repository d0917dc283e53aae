"""What the log of a training run says, and the numbers that products' readers take from its lines."""

from __future__ import annotations

from dataclasses import dataclass, field

# The lines of ranks may be interleaved: what is not a number as a whole is none.
NUMBER = r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
WHOLE = r"\d{1,15}"
LARGEST = 1e15  # more is no time and no memory


@dataclass
class Log:
    """What one arm's log says. Steps are those that were logged; `times` is empty where none is printed."""

    product: str = ""
    unit: str = ""  # of `times`
    losses: dict[int, dict[str, float]] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    memory: float | None = None  # GB, the largest of all ranks and steps that are printed
    bad: int = 0  # iterations that the trainer itself counted as skipped or NaN

    def peak(self, gigabytes: float) -> None:
        """Memory of some rank at some step."""
        if 0 <= gigabytes < LARGEST:
            self.memory = max(self.memory or 0.0, gigabytes)

    def time(self, step: int, time: float) -> None:
        """What a step took."""
        if 1 / LARGEST < time < LARGEST:
            self.times[step] = time
