"""NVIDIA NeMo Megatron-Bridge."""

import re

from skillgen.kernel.product import Product, Recipes
from skillgen.kernel.trainer_log import NUMBER, WHOLE, Log

TITLE = "Megatron-Bridge"
LOSS = re.compile(rf"nan|[-+]?inf|{NUMBER}")
COUNT = re.compile(rf"\s*({WHOLE})(?!\d)")
# [2026-01-31 12:00:00] iteration        5/      20 | elapsed time per iteration (ms): 812.5 | lm loss: 2.34E+00 | ...
STEP = re.compile(rf"\biteration\s+({WHOLE})/\s*{WHOLE} \|(.*)")
# [Rank 3] (after 2 iterations) memory (GB) | mem-max-allocated-gigabytes: 73.1 | ...
MEMORY = re.compile(rf"\bmem-max-allocated-gigabytes: ({NUMBER})(?=[\s|]|$)")
PRINTED = (
    "every rank of the first data-parallel replica prints its peak memory, after the first and the "
    "second logged iteration; the largest counts"
)


def read(log: Log, line: str) -> bool:
    """Take from a line of a run's log what it says; whether it says anything."""
    if found := STEP.search(line):
        _step(log, int(found[1]), found[2])
    elif found := MEMORY.search(line):
        log.peak(float(found[1]))
    return found is not None


def _step(log: Log, step: int, text: str) -> None:
    """A loss that is not a number is not printed there at all: the step then has fewer losses than the others."""
    log.product, log.unit = TITLE, "ms per step"
    named = dict(part.strip().rpartition(": ")[::2] for part in text.split("|") if ": " in part)
    numbers = {name: float(text) for name, text in named.items() if LOSS.fullmatch(text.strip())}
    log.losses[step] = {name: value for name, value in numbers.items() if name.endswith("loss")}
    log.time(step, numbers.get("elapsed time per iteration (ms)", 0))
    counts = (COUNT.match(named.get(f"number of {what} iterations", "")) for what in ("skipped", "nan"))
    log.bad += sum(int(count[1]) for count in counts if count)


PRODUCT = Product(
    name="megatron-bridge",
    title=TITLE,
    package="megatron/bridge",
    distribution="megatron-bridge",
    releases="bridge",
    rank=1,
    spaced=True,
    signed=True,
    recipes=Recipes(
        script="scripts/training/run_recipe.py", words=("--recipe",), flag="model.", read=read, printed=PRINTED
    ),
)
