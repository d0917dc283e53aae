"""A stand-in for a training recipe: prints what a trainer prints of each step, and honours the flag."""

from __future__ import annotations

import math
import os
import sys
import time
from itertools import pairwise

FLAG = "vision_dp_over_cp"
STEPS = 8


def main(product: str, *words: str) -> None:
    """`product` prints as bridge or automodel does; `words` are the flag and faults to show."""
    options = dict(word.partition("=")[::2] for word in words)
    options |= {name.removeprefix("--"): value for name, value in pairwise(words)}
    on = options.get(f"model.{FLAG}", options.get(FLAG, os.environ.get("VISION_DP_OVER_CP", "0"))) in ("true", "1")
    if options.get("fault-in", "both") not in ("both", "on" if on else "off"):
        options["fault"] = ""
    fault = options.get("fault", "")
    for step in range(1, STEPS + 1):
        loss = 2.5 * math.exp(-step / 9) * (1 + (2e-3 if on else 0) * math.sin(step))
        if fault == "diverges" and step > 4:
            loss *= 1.2
        if fault == "nan" and step == 5:
            loss = math.nan
        seconds = (13.2 if fault == "slow" or not on else 12.5) + 0.1 * math.cos(step) + (20 if step < 3 else 0)
        gigabytes = (81.0 if fault == "large" or not on else 73.2) + 0.01 * step
        if fault == "no-effect":
            loss, seconds, gigabytes = 2.5 * math.exp(-step / 9), 13.2, 81.0
        if fault == "dies" and step == 4:
            print("CUDA out of memory", file=sys.stderr)
            sys.exit(3)
        if fault == "hangs" and step == 4:
            time.sleep(300)
        print(
            *{"bridge": bridge, "automodel": automodel}[product](step, loss, seconds, gigabytes), sep="\n", flush=True
        )


def bridge(step: int, loss: float, seconds: float, gigabytes: float) -> list[str]:
    """Step time from rank 0, the line of the step from the last rank, memory of several ranks after two steps."""
    said = f" [2026-01-31 12:00:{step:02d}] iteration {step:8d}/{STEPS:8d} | consumed samples: {64 * step:12d} |"
    said += f" elapsed time per iteration (ms): {seconds * 1e3:.1f} | learning rate: 1.000000E-05 |"
    said += "" if math.isnan(loss) else f" lm loss: {loss:.6E} |"
    said += f" loss scale: 1.0 | number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |"
    lines = [f"Step Time : {seconds:.2f}s GPU utilization: 101.3MODEL_TFLOP/s/GPU", said]
    if step <= 2:
        memory = "[Rank {}] (after {} iterations) memory (GB) | mem-allocated-gigabytes: 41.0 | "
        memory += "mem-max-allocated-gigabytes: {} | mem-max-reserved-gigabytes: 99.0"
        lines += [memory.format(rank, step, round(gigabytes - rank, 3)) for rank in (0, 1)]
    return lines


def automodel(step: int, loss: float, seconds: float, gigabytes: float) -> list[str]:
    """One line for a step, and one of a validation now and then."""
    speed = 65536 / seconds
    said = [f"2026-01-31 12:00:{step:02d}", "INFO", "root", f"step {step - 1}", "epoch 0", f"loss {loss:.4f}"]
    said += ["grad_norm 1.0312", "lr 1.00e-05", f"mem {gigabytes / 1.024**3:.2f} GiB"]
    said += [f"tps {speed:.2f}({speed / 8:.2f}/gpu)", "num_label_tokens 4096"]
    return [" | ".join(said), f"[val] step {step - 1} | epoch 0 | loss 9.9999 | lr 1.00e-05 | num_label_tokens 512"]


if __name__ == "__main__":
    main(*sys.argv[1:])
