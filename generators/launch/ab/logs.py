"""Step time, peak memory and losses in the log of a training run, as Megatron-Bridge and NeMo Automodel print them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

# The lines of ranks may be interleaved: what is not a number as a whole is none.
NUMBER = r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
LOSS = re.compile(rf"nan|[-+]?inf|{NUMBER}")
WHOLE = r"\d{1,15}"
COUNT = re.compile(rf"\s*({WHOLE})(?!\d)")
LARGEST = 1e15  # more is no time and no memory
# [2026-01-31 12:00:00] iteration        5/      20 | elapsed time per iteration (ms): 812.5 | lm loss: 2.34E+00 | ...
BRIDGE_STEP = re.compile(rf"\biteration\s+({WHOLE})/\s*{WHOLE} \|(.*)")
# [Rank 3] (after 2 iterations) memory (GB) | mem-max-allocated-gigabytes: 73.1 | ...
BRIDGE_MEMORY = re.compile(rf"\bmem-max-allocated-gigabytes: ({NUMBER})(?=[\s|]|$)")
# ... | step 5 | epoch 0 | loss 2.3400 | grad_norm 1.2 | lr 1.00e-05 | mem 60.55 GiB | tps 120.00(15.00/gpu) | ...
AUTOMODEL_STEP = re.compile(rf"\bstep ({WHOLE}) \| epoch {WHOLE} \| (.*)")
AUTOMODEL_FIELD = re.compile(rf"(\w+) (nan|-?inf|{NUMBER})(?=s?(?:[\s|(]|$))")
MULTIMODAL_LOSSES = ("ce", "mse")  # of the recipe that trains two heads


@dataclass
class Log:
    """What one arm's log says. Steps are those that were logged; `times` is empty where none is printed."""

    product: str = ""
    unit: str = ""  # of `times`
    losses: dict[int, dict[str, float]] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    memory: float | None = None  # GB, the largest of all ranks and steps that are printed
    bad: int = 0  # iterations that the trainer itself counted as skipped or NaN

    def _peak(self, gigabytes: float) -> None:
        if 0 <= gigabytes < LARGEST:
            self.memory = max(self.memory or 0.0, gigabytes)

    def _time(self, step: int, time: float) -> None:
        if 1 / LARGEST < time < LARGEST:
            self.times[step] = time


def read(lines: Iterable[str]) -> Log:
    """The log of a run; `product` is empty if no line is a step of a known trainer."""
    log = Log()
    for line in lines:
        if found := BRIDGE_STEP.search(line):
            _bridge(log, int(found[1]), found[2])
        elif found := BRIDGE_MEMORY.search(line):
            log._peak(float(found[1]))
        elif "[val]" not in line and (found := AUTOMODEL_STEP.search(line)):
            _automodel(log, int(found[1]), found[2])
    return log


def _bridge(log: Log, step: int, text: str) -> None:
    """A loss that is not a number is not printed there at all: the step then has fewer losses than the others."""
    log.product, log.unit = "Megatron-Bridge", "ms per step"
    named = dict(part.strip().rpartition(": ")[::2] for part in text.split("|") if ": " in part)
    numbers = {name: float(text) for name, text in named.items() if LOSS.fullmatch(text.strip())}
    log.losses[step] = {name: value for name, value in numbers.items() if name.endswith("loss")}
    log._time(step, numbers.get("elapsed time per iteration (ms)", 0))
    counts = (COUNT.match(named.get(f"number of {what} iterations", "")) for what in ("skipped", "nan"))
    log.bad += sum(int(count[1]) for count in counts if count)


def _automodel(log: Log, step: int, text: str) -> None:
    """Tokens per second stand in the place of a step's time: for equal batches the ratio of two runs is the same."""
    named = {name: float(number) for name, number in AUTOMODEL_FIELD.findall(text)}
    log.product = "NeMo Automodel"
    log.losses[step] = {
        name: value for name, value in named.items() if name.endswith("loss") or name in MULTIMODAL_LOSSES
    }
    if "time" in named:
        log.unit = "ms per step"
        log._time(step, named["time"] * 1e3)
    elif named.get("tps"):
        log.unit = "µs per token"
        log._time(step, 1e6 / named["tps"])
    if "mem" in named:
        log._peak(named["mem"] * 1.024**3)
