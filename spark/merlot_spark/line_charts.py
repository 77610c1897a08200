"""Line charts as SVG, without a plotting library: panels below each other over one axis, a legend, round numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 860
PANEL_HEIGHT: Final = 220
LEFT: Final = 90
RIGHT: Final = 20
TOP: Final = 64
GAP: Final = 44
COLORS: Final = ("#1f6feb", "#d1480f", "#2c8a4b", "#7a3fc0")
INK: Final = "#3b4252"
TICKS: Final = 5


@dataclass(frozen=True, slots=True)
class Series:
    """One line."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines that share an axis, which begins at 0."""

    title: str
    series: Sequence[Series]


def line_chart(title: str, across: str, panels: Sequence[Panel]) -> str:
    """The text of an SVG file. across: what the horizontal axis counts."""
    xs = [x for panel in panels for series in panel.series for x, _ in series.points]
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    height = TOP + len(panels) * (PANEL_HEIGHT + GAP) + 10
    look = f'font-family="sans-serif" font-size="13" fill="{INK}"'
    middle = (LEFT + WIDTH - RIGHT) / 2
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {look}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
        *_legend(panels),
    ]
    for number, panel in enumerate(panels):
        drawn += _panel(panel, TOP + number * (PANEL_HEIGHT + GAP), low, high if high > low else low + 1)
    drawn.append(f'<text x="{middle}" y="{height - 6}" text-anchor="middle">{escape(across)}</text>')
    return "\n".join([*drawn, "</svg>", ""])


def _legend(panels: Sequence[Panel]) -> list[str]:
    names = [series.name for series in panels[0].series] if panels else []
    drawn, x = [], float(LEFT)
    for name, color in zip(names, COLORS, strict=False):
        drawn.append(f'<line x1="{x}" y1="42" x2="{x + 24}" y2="42" stroke="{color}" stroke-width="3"/>')
        drawn.append(f'<text x="{x + 30}" y="46">{escape(name)}</text>')
        x += 60 + 7.5 * len(name)
    return drawn


def _panel(panel: Panel, top: float, low: float, high: float) -> list[str]:
    bottom, width = top + PANEL_HEIGHT, WIDTH - LEFT - RIGHT
    most = max((y for series in panel.series for _, y in series.points), default=1.0)
    steps = ticks(0.0, most)
    ceiling = max(steps[-1], most) or 1.0
    drawn = [f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(panel.title)}</text>']
    for y in steps:
        place = bottom - y / ceiling * PANEL_HEIGHT
        drawn.append(f'<line x1="{LEFT}" y1="{place:.1f}" x2="{WIDTH - RIGHT}" y2="{place:.1f}" stroke="#e3e6ec"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{y:,g}</text>')
    for x in (one for one in ticks(low, high) if low <= one <= high):
        place = LEFT + (x - low) / (high - low) * width
        drawn.append(f'<text x="{place:.1f}" y="{bottom + 18}" text-anchor="middle">{x:,g}</text>')
    for series, color in zip(panel.series, COLORS, strict=False):
        points = " ".join(
            f"{LEFT + (x - low) / (high - low) * width:.1f},{bottom - y / ceiling * PANEL_HEIGHT:.1f}"
            for x, y in series.points
        )
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
    return drawn


def ticks(low: float, high: float) -> list[float]:
    """Some round numbers from at most `low` to at least `high`."""
    span = (high - low) or 1.0
    rough = span / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough)
    first = math.floor(low / step)
    return [round(number * step, 9) for number in range(first, math.ceil(high / step) + 1)]
