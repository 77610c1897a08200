"""Line charts as SVG, without a plotting library: panels below each other over one axis, legends, round numbers.

Charts have a white background of their own, so that they look the same on light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 860
PANEL_HEIGHT: Final = 220
LEFT: Final = 90
RIGHT: Final = 40
TOP: Final = 72
GAP: Final = 60
LEGEND_STEP: Final = 20
COLORS: Final = ("#1f6feb", "#d1480f", "#2c8a4b", "#7a3fc0", "#b8860b", "#c2256b", "#0f8b9d", "#5c6370")
INK: Final = "#3b4252"
GRID: Final = "#e3e6ec"
TICKS: Final = 5
FEW_POINTS: Final = 20
"""Largest number of points that are marked."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines that share an axis. It begins at 0; a logarithmic axis has positive numbers only."""

    title: str
    series: Sequence[Series]
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """Mapping of numbers to positions on an axis, 0 at its beginning and 1 at its end."""

    low: float
    high: float
    ticks: Sequence[float]
    is_log: bool = False

    def place(self, value: float) -> float:
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def line_chart(title: str, across: str, panels: Sequence[Panel], *, is_log: bool = False) -> str:
    """Return the text of an SVG file. `across` labels the horizontal axis. With `is_log` that axis is logarithmic, and
    all of its numbers are positive."""
    scale = _across([x for panel in panels for series in panel.series for x, _ in series.points], is_log=is_log)
    names = [tuple(series.name for series in panel.series) for panel in panels]
    is_shared = len(set(names)) == 1
    rows = _rows(names[0]) if is_shared else []
    top = TOP + LEGEND_STEP * max(0, len(rows) - 1)
    drawn = []
    for row, places in enumerate(rows):
        drawn += [_key(x, 42 + LEGEND_STEP * row, name, color) for x, name, color in places]
    for number, panel in enumerate(panels):
        begins = top + number * (PANEL_HEIGHT + GAP)
        drawn += _panel(panel, begins, scale)
        if not is_shared and len(panel.series) > 1:
            [*_, keys] = _rows(names[number])
            shift = WIDTH - RIGHT - keys[-1][0] - _key_width(keys[-1][1])
            drawn += [_key(x + shift, begins - 13, name, color) for x, name, color in keys]
    height = top + len(panels) * (PANEL_HEIGHT + GAP) - 4
    middle = (LEFT + WIDTH - RIGHT) / 2
    drawn.append(f'<text x="{middle}" y="{height - 6}" text-anchor="middle">{escape(across)}</text>')
    return framed(title, height, drawn)


def framed(title: str, height: float, drawn: Sequence[str]) -> str:
    """Return the SVG file of a chart: background, title, and the drawn elements."""
    look = f'font-family="sans-serif" font-size="13" fill="{INK}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {look}>',
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
    ]
    return "\n".join([*head, *drawn, "</svg>", ""])


def number_text(value: float) -> str:
    """Return a tick's label: 0.001, 2.5, 1,000,000."""
    return f"{value:,.12g}" if abs(value) < 1 else f"{value:,.10g}"


def _across(xs: Sequence[float], *, is_log: bool) -> Scale:
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    if is_log:
        high = high if high > low else low * 10
        return Scale(low, high, [tick for tick in log_ticks(low, high) if low <= tick <= high], is_log=True)
    high = high if high > low else low + 1
    return Scale(low, high, [tick for tick in ticks(low, high) if low <= tick <= high])


def _upward(panel: Panel) -> Scale:
    ys = [y for series in panel.series for _, y in series.points]
    if panel.is_log:
        steps = log_ticks(min(ys), max(ys))
        return Scale(min(steps[0], *ys), max(steps[-1], *ys), steps, is_log=True)
    most = max(ys, default=1.0)
    steps = ticks(0.0, most)
    return Scale(0.0, max(steps[-1], most) or 1.0, steps)


def _rows(names: Sequence[str]) -> list[list[tuple[float, str, str]]]:
    """Return the keys of a legend, in as many rows as it takes: position, name and color of each."""
    rows: list[list[tuple[float, str, str]]] = []
    x = math.inf
    for name, color in zip(names, COLORS, strict=False):
        if x + _key_width(name) > WIDTH - RIGHT:
            rows.append([])
            x = LEFT
        rows[-1].append((x, name, color))
        x += _key_width(name) + 22
    return rows


def _key_width(name: str) -> float:
    return 30 + 7.0 * len(name)


def _key(x: float, y: float, name: str, color: str) -> str:
    line = f'<line x1="{x:.1f}" y1="{y}" x2="{x + 24:.1f}" y2="{y}" stroke="{color}" stroke-width="3"/>'
    return f'{line}\n<text x="{x + 30:.1f}" y="{y + 4}">{escape(name)}</text>'


def _panel(panel: Panel, top: float, across: Scale) -> list[str]:
    bottom, width, upward = top + PANEL_HEIGHT, WIDTH - LEFT - RIGHT, _upward(panel)
    drawn = [f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(panel.title)}</text>']
    for y in upward.ticks:
        place = bottom - upward.place(y) * PANEL_HEIGHT
        drawn.append(f'<line x1="{LEFT}" y1="{place:.1f}" x2="{WIDTH - RIGHT}" y2="{place:.1f}" stroke="{GRID}"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{number_text(y)}</text>')
    for x in across.ticks:
        place = LEFT + across.place(x) * width
        drawn.append(f'<line x1="{place:.1f}" y1="{bottom}" x2="{place:.1f}" y2="{bottom + 4}" stroke="{INK}"/>')
        drawn.append(f'<text x="{place:.1f}" y="{bottom + 18}" text-anchor="middle">{number_text(x)}</text>')
    for series, color in zip(panel.series, COLORS, strict=False):
        places = [
            (f"{LEFT + across.place(x) * width:.1f}", f"{bottom - upward.place(y) * PANEL_HEIGHT:.1f}")
            for x, y in series.points
        ]
        points = " ".join(map(",".join, places))
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        if len(places) <= FEW_POINTS:
            drawn += [f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>' for x, y in places]
    return drawn


def ticks(low: float, high: float) -> list[float]:
    """Return some round numbers from at most `low` to at least `high`."""
    span = (high - low) or 1.0
    rough = span / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough)
    first = math.floor(low / step)
    return [round(number * step, 9) for number in range(first, math.ceil(high / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten from at most `low` to at least `high`, both positive. For less than two decades, 2 and 5
    times the powers are added as far as they are needed."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = [10.0**power for power in range(first, max(last, first + 1) + 1)]
    if len(powers) > 3:
        return [round(power, 12) for power in powers]
    steps = [round(factor * power, 12) for power in powers for factor in (1, 2, 5)]
    below = max(step for step in steps if step <= low)
    above = min(step for step in steps if step >= high and step > below)
    return [step for step in steps if below <= step <= above]
