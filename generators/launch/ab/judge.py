"""The criteria of an A/B run: what each says, and whether two logs meet it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from skillgen.kernel.trainer_log import Log

SMALL = 0.05  # a smaller loss is not compared with itself but with this
STILL = 0.02  # step times this close are one


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What arm B may be, as a ratio to arm A; None leaves a thing unjudged."""

    loss: float | None = 0.02
    step_time: float | None = 1.02
    peak_memory: float | None = 1.0
    warmup: int = 3  # steps whose time does not count

    def criteria(self) -> list[str]:
        """In words, for a report."""
        said = []
        if self.loss is not None:
            said.append(f"losses: at every step, B differs from A by at most {self.loss:.2%} of A")
        if self.step_time is not None:
            said.append(f"step time: the median of B, after {self.warmup} steps, is at most {self.step_time:g} of A's")
        if self.peak_memory is not None:
            said.append(f"peak memory: that of B is below {self.peak_memory:g} of A's")
        return [*said, "effect: something differs between the arms, or the flag did nothing"]


@dataclass(frozen=True)
class Verdict:
    """One criterion: the value, its limit, and why it failed if it did."""

    name: str
    value: float
    limit: float
    reason: str = ""
    numbers: tuple[float, float] | None = None  # of A and of B

    def row(self, flag: str) -> dict[str, Any]:
        """As a row of a report."""
        told: dict[str, Any] = {"family": flag, "variant": "", "kind": "ab", "name": self.name, "seconds": 0}
        told |= {"status": "failed" if self.reason else "passed", "reason": self.reason}
        told["checks"] = {self.name: (self.value if math.isfinite(self.value) else 1e308, self.limit)}
        return told | {"numbers": {"A": [self.numbers[0]], "B": [self.numbers[1]]} if self.numbers else {}}


def judge(a: Log, b: Log, limits: Limits) -> list[Verdict]:
    """All criteria, those that were asked for."""
    verdicts = [_steps(a, b)]
    if limits.loss is not None:
        verdicts.append(_losses(a, b, limits.loss))
    if limits.step_time is not None:
        verdicts.append(_step_time(a, b, limits.step_time, limits.warmup))
    if limits.peak_memory is not None:
        verdicts.append(_memory(a, b, limits.peak_memory))
    return [*verdicts, _effect(a, b, limits.warmup)]


def _steps(a: Log, b: Log) -> Verdict:
    only = sorted(a.losses.keys() ^ b.losses.keys())
    reason = f"in one arm only: step {', '.join(map(str, only[:5]))}" if only else ""
    if bad := [f"{name}: {log.bad}" for name, log in (("A", a), ("B", b)) if log.bad]:
        reason = f"skipped or NaN iterations, {'; '.join(bad)}"
    return Verdict("the same steps, none skipped", len(only) + a.bad + b.bad, 0, reason)


def _losses(a: Log, b: Log, limit: float) -> Verdict:
    worst, where = 0.0, ""
    for step in sorted(a.losses.keys() & b.losses.keys()):
        for name in sorted(a.losses[step].keys() | b.losses[step].keys() or {"loss"}):
            pair = [log.losses[step].get(name, math.nan) for log in (a, b)]
            off = difference(*pair)
            if off > worst:
                worst, where = off, f"{name} of step {step} is {pair[0]:.6g} in A and {pair[1]:.6g} in B"
    reason = ""
    if not worst <= limit:
        first = where.split(" is ")[0].endswith(f"step {min(a.losses)}")
        reason = where + (": from the first step on, so are seed, data and weights the same?" if first else "")
    return Verdict("losses track", worst, limit, reason)


def difference(a: float, b: float) -> float:
    """Of two losses, relative to A; infinite if either is not a number."""
    off = abs(b - a) / max(abs(a), SMALL)
    return off if math.isfinite(off) else math.inf


def middle(log: Log, warmup: int) -> float | None:
    """The median time of the steps after the warm-up; None if there are none."""
    times = [log.times[step] for step in sorted(log.times)[warmup:]]
    return median(times) if times else None


def _step_time(a: Log, b: Log, limit: float, warmup: int) -> Verdict:
    name = "step time does not regress"
    one, other = middle(a, warmup), middle(b, warmup)
    if one is None or other is None:
        return Verdict(
            name, math.inf, limit, f"no step after the first {warmup} has a time in arm {_without(one, other)}"
        )
    ratio = other / one
    reason = "" if ratio <= limit else f"{one:,.5g} to {other:,.5g} {a.unit}: {ratio:.3f} of A's, limit {limit:g}"
    return Verdict(name, ratio, limit, reason, (one, other))


def _memory(a: Log, b: Log, limit: float) -> Verdict:
    name = "peak memory drops"
    if a.memory is None or b.memory is None:
        return Verdict(name, math.inf, limit, f"no peak memory in the log of arm {_without(a.memory, b.memory)}")
    ratio = b.memory / a.memory if a.memory else math.inf
    reason = "" if ratio < limit else f"{a.memory:,.5g} to {b.memory:,.5g} GB: {ratio:.3f} of A's, not below {limit:g}"
    return Verdict(name, ratio, limit, reason, (a.memory, b.memory))


def _effect(a: Log, b: Log, warmup: int) -> Verdict:
    one, other = middle(a, warmup), middle(b, warmup)
    still = one is None or other is None or abs(other / one - 1) <= STILL
    nothing = still and a.losses == b.losses and a.memory == b.memory
    hint = "nothing differs: is context parallelism above 1? Without it the flag does nothing"
    return Verdict("the flag has an effect", float(nothing), 0, hint if nothing else "")


def _without(*values: float | None) -> str:
    return " and ".join(name for name, value in zip("AB", values, strict=True) if value is None)


def headline(a: Log, b: Log, verdicts: Sequence[Verdict]) -> list[str]:
    """What changed, in a phrase for each figure that both arms have."""
    found = {verdict.name: verdict for verdict in verdicts}
    units = {"step time does not regress": ("step time", a.unit), "peak memory drops": ("peak memory", "GB")}
    said = []
    for name, (what, unit) in units.items():
        if name in found and (numbers := found[name].numbers):
            said.append(f"{what} {numbers[0]:,.5g} to {numbers[1]:,.5g} {unit} ({found[name].value - 1:+.1%})")
    return [*said, *(f"losses within {found[name].value:.2%}" for name in ["losses track"] if name in found)]
