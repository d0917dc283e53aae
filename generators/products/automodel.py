"""NVIDIA NeMo Automodel."""

import re

from skillgen.kernel.product import Product, Recipes
from skillgen.kernel.trainer_log import NUMBER, WHOLE, Log

TITLE = "NeMo Automodel"
# ... | step 5 | epoch 0 | loss 2.3400 | grad_norm 1.2 | lr 1.00e-05 | mem 60.55 GiB | tps 120.00(15.00/gpu) | ...
STEP = re.compile(rf"\bstep ({WHOLE}) \| epoch {WHOLE} \| (.*)")
FIELD = re.compile(rf"(\w+) (nan|-?inf|{NUMBER})(?=s?(?:[\s|(]|$))")
MULTIMODAL_LOSSES = ("ce", "mse")  # of the recipe that trains two heads
PRINTED = (
    "rank 0 alone prints its peak memory, of each step; the largest counts. A step has tokens per "
    "second and no time: for equal batches the ratio of the arms is that of their step times"
)


def read(log: Log, line: str) -> bool:
    """Take from a line of a run's log what it says; whether it says anything."""
    if "[val]" in line or not (found := STEP.search(line)):
        return False
    _step(log, int(found[1]), found[2])
    return True


def _step(log: Log, step: int, text: str) -> None:
    """Tokens per second stand in the place of a step's time: for equal batches the ratio of two runs is the same."""
    named = {name: float(number) for name, number in FIELD.findall(text)}
    log.product = TITLE
    log.losses[step] = {
        name: value for name, value in named.items() if name.endswith("loss") or name in MULTIMODAL_LOSSES
    }
    if "time" in named:
        log.unit = "ms per step"
        log.time(step, named["time"] * 1e3)
    elif named.get("tps"):
        log.unit = "µs per token"
        log.time(step, 1e6 / named["tps"])
    if "mem" in named:
        log.peak(named["mem"] * 1.024**3)


PRODUCT = Product(
    name="automodel",
    title=TITLE,
    package="nemo_automodel",
    distribution="nemo-automodel",
    releases="automodel",
    rank=2,
    signed=True,
    recipes=Recipes(module="nemo_automodel.cli.app", flag="--", read=read, printed=PRINTED),
)
