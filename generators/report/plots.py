"""The plots of a report: inline SVG with its own colours, which the page's style replaces where it has others."""

from __future__ import annotations

import math
from html import escape
from typing import Any, NamedTuple

from skillgen.report.rows import arms, number

COLOURS = ("#8a8f98", "#76b900", "#4c78a8")  # a reference, what is judged, another method
WIDTH, HEIGHT, TOP, FOOT = 320, 120, 20, 20
WIDEST = 44  # a bar
READABLE = 36  # the least width that holds a number


class Plot(NamedTuple):
    """A measure that is worth a picture, and the unit that it is shown in."""

    measure: str
    title: str
    scale: float = 1


PLOTS = (
    Plot("patches", "Patches per rank"),
    Plot("score_entries", "Attention scores per rank"),
    Plot("activation bytes", "Activation memory per rank, MB", 1e6),
    Plot("allocator peak bytes", "Peak of the allocator per rank, MB", 1e6),
    Plot("step ms", "Step time per rank, ms"),
    Plot("busy ms of a step", "Busy time of a step per rank, ms"),
)
LOSS = "loss"  # a number that is a list per rank: one loss per step


def figures(row: dict[str, Any]) -> list[str]:
    """The plots of one case, as far as it measured what they show."""
    drawn = []
    for plot in PLOTS:
        series = {arm: values for arm, values in arms(row, plot.measure).items() if all(map(_plottable, values))}
        if series:
            scaled = {arm: [value / plot.scale for value in values] for arm, values in series.items()}
            drawn.append(bars(plot.title, scaled))
    losses = {arm: values[0] for arm, values in arms(row, LOSS).items() if values and _curve(values[0])}
    return [*drawn, lines("Loss per step, rank 0", losses)] if len(losses) > 1 else drawn


def bars(title: str, series: dict[str, list[float]]) -> str:
    """One bar per rank and arm."""
    top = max((value for values in series.values() for value in values), default=0) or 1
    ranks = max(map(len, series.values()), default=0)
    group = max(WIDTH / max(ranks, 1), 2 * len(series) + 2)
    width = min(WIDEST, 0.84 * group / max(len(series), 1))
    named = group >= 44
    every = math.ceil(24 / group)  # so that the numbers of ranks stay apart
    parts = [_rule(TOP, group * ranks), _rule(TOP + HEIGHT, group * ranks)]
    if width < READABLE:
        parts.append(f'<text x="0" y="{TOP - 5}">{number(top)}</text>')
    for arm, (name, values) in enumerate(series.items()):
        for rank, value in enumerate(values):
            size = HEIGHT * value / top
            x = rank * group + (group - width * len(series)) / 2 + arm * width
            place = f'x="{x:.1f}" y="{TOP + HEIGHT - size:.1f}" width="{width * 0.92:.1f}" height="{size:.1f}"'
            tip = f"<title>rank {rank}, {escape(name)}: {number(value)}</title>"
            parts.append(f'<rect class="arm{arm % 3}" {place} fill="{COLOURS[arm % 3]}">{tip}</rect>')
            if width >= READABLE:
                middle = f'x="{x + width * 0.46:.1f}" y="{TOP + HEIGHT - size - 4:.1f}" text-anchor="middle"'
                parts.append(f"<text {middle}>{number(value)}</text>")
    for rank in range(0, ranks, every):
        middle = f'x="{(rank + 0.5) * group:.1f}" y="{TOP + HEIGHT + 15}" text-anchor="middle"'
        parts.append(f"<text {middle}>{'rank ' if named else ''}{rank}</text>")
    return _figure(title, list(series), max(group * ranks, WIDTH) + 6, parts)  # the last number may be broad


def lines(title: str, series: dict[str, list[float]]) -> str:
    """One curve per arm; the first is drawn broad, so that it shows below one that is equal."""
    values = [value for curve in series.values() for value in curve]
    low, high = min(values), max(values)
    steps = max(max(map(len, series.values())) - 1, 1)
    parts = [f'<text x="0" y="{TOP - 5}">{number(high)}</text>', _rule(TOP, WIDTH), _rule(TOP + HEIGHT, WIDTH)]
    parts.append(f'<text x="0" y="{TOP + HEIGHT + 15}">lowest {number(low)}</text>')
    parts.append(f'<text x="{WIDTH}" y="{TOP + HEIGHT + 15}" text-anchor="end">step {steps + 1}</text>')
    for arm, (name, curve) in enumerate(series.items()):
        points = [
            f"{WIDTH * step / steps:.1f},{TOP + HEIGHT * (high - value) / ((high - low) or 1):.1f}"
            for step, value in enumerate(curve)
        ]
        stroke = f'stroke="{COLOURS[arm % 3]}" stroke-width="{2 if arm else 7}"'
        tip = f"<title>{escape(name)}: {number(curve[0])} to {number(curve[-1])}</title>"
        parts.append(
            f'<polyline class="line{arm % 3}" fill="none" {stroke} points="{" ".join(points)}">{tip}</polyline>'
        )
    return _figure(title, list(series), WIDTH, parts)


def _figure(title: str, names: list[str], width: float, parts: list[str]) -> str:
    key = "".join(f'<span class="key arm{arm % 3}">{escape(name)}</span> ' for arm, name in enumerate(names) if name)
    size = f'width="{width:.0f}" height="{TOP + HEIGHT + FOOT}" viewBox="0 0 {width:.0f} {TOP + HEIGHT + FOOT}"'
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="11" role="img" aria-label="{escape(title)}">'
    caption = f"<figcaption><b>{escape(title)}</b> {key}</figcaption>"
    return f"<figure>{caption}<div>{drawing}{''.join(parts)}</svg></div></figure>"


def _rule(y: float, width: float) -> str:
    return f'<line x1="0" y1="{y}" x2="{max(width, WIDTH):.0f}" y2="{y}" stroke="currentColor" stroke-opacity="0.25"/>'


def _plottable(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _curve(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(map(_plottable, value))
