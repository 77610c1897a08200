"""ClickBench's 43 queries: how long Merlot takes of what DuckDB takes, sorted."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from html import escape
from typing import Final

from examples.demos.line_charts import COLORS, GRID, INK, LEFT, RIGHT, WIDTH, Scale, framed, log_ticks, number_text
from tests.bench import clickbench, clickbench_data, report
from tests.bench.report import Case
from tests.bench.ssb import rows_of

ROWS: Final = 1_000_000
TOP: Final = 72
HEIGHT: Final = 300


def clickbench_ratios() -> str:
    """Measure and draw; literals are drawn anew each time."""
    seed = random.SystemRandom().randrange(1 << 31)
    table = rows_of(f"clickbench-{ROWS}", lambda: clickbench_data.generate(ROWS, clickbench.DATA_SEED))
    cases = clickbench.compare(clickbench.literals(table, seed), table, clickbench.REPEATS)
    mean = report.geometric_mean(cases)
    faster = sum(case.ratio < 1 for case in cases)
    print(f"seed {seed}: {faster} of {len(cases)} are faster, geometric mean {mean:.2f}")
    title = f"ClickBench, {ROWS:,} rows, 2 threads: time of Merlot / time of DuckDB"
    told = f"below 1, Merlot is faster: {faster} of {len(cases)}; geometric mean {mean:.2f}"
    return ratio_chart(title, told, cases)


def ratio_chart(title: str, told: str, cases: Sequence[Case]) -> str:
    """Bars from 1, the shortest ratio first, on a logarithmic axis."""
    ordered = sorted(cases, key=lambda case: case.ratio)
    ratios = [case.ratio for case in ordered]
    steps = log_ticks(min(*ratios, 0.5), max(*ratios, 2.0))
    scale = Scale(steps[0], steps[-1], steps, is_log=True)
    bottom, width = TOP + HEIGHT, (WIDTH - LEFT - RIGHT) / len(ordered)
    drawn = [f'<text x="{LEFT}" y="{TOP - 16}">{escape(told)}</text>']
    for step in steps:
        y = bottom - scale.place(step) * HEIGHT
        color = INK if math.isclose(step, 1.0) else GRID
        drawn.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{color}"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number_text(step)}</text>')
    one = bottom - scale.place(1.0) * HEIGHT
    for number, case in enumerate(ordered):
        x, y = LEFT + number * width, bottom - scale.place(case.ratio) * HEIGHT
        top, height = min(y, one), max(abs(y - one), 1.0)
        color = COLORS[0] if case.ratio < 1 else COLORS[1]
        tip = f"<title>{escape(case.case)}: {case.ours:.2f} and {case.theirs:.2f} ms, {case.ratio:.2f}</title>"
        place = f'x="{x + 2:.1f}" y="{top:.1f}" width="{width - 4:.1f}" height="{height:.1f}"'
        drawn.append(f'<rect {place} fill="{color}">{tip}</rect>')
        middle = x + width / 2 + 4
        turned = f'transform="rotate(-90 {middle:.1f} {bottom + 8})"'
        drawn.append(
            f'<text x="{middle:.1f}" y="{bottom + 8}" font-size="11" text-anchor="end" {turned}>{case.case}</text>'
        )
    return framed(title, bottom + 48, drawn)
