"""Seconds that each index and a star-tree take to be made, against rows: as a server makes them for a segment that
lacks them, from stored columns to the file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from examples.demos.line_charts import Panel, Series, line_chart
from tests.bench import ssb_data
from tests.bench.indexes import WARM_ROWS, indexed
from tests.bench.indexes_data import SUBJECTS
from tests.bench.ssb import rows_of
from tests.bench.star_tree import SEGMENT_ROWS, built_s

ROWS: Final = (10_000, 30_000, 100_000, 300_000, 1_000_000)
NAMES: Final = {"json_paths": "JSON", "ngram": "n-gram", "bloom": "Bloom"}


def index_builds() -> str:
    """Measure and draw."""
    series = []
    for subject in SUBJECTS:
        table = subject.table(ROWS[-1])
        with tempfile.TemporaryDirectory() as folder:
            indexed(subject, table.slice(0, WARM_ROWS), Path(folder))
            points = [(count, indexed(subject, table.slice(0, count), Path(folder)).index_s) for count in ROWS]
        series.append(Series(NAMES.get(subject.kind, subject.kind), points))
        print(f"{subject.kind}: {', '.join(f'{x:,} rows {y:.3f} s' for x, y in points)}", flush=True)
    series.append(Series("star-tree", _of_trees()))
    title = "Building an index: one core, from the stored column to the file"
    return line_chart(title, "rows", [Panel("seconds of CPU", series, is_log=True)], is_log=True)


def _of_trees() -> list[tuple[float, float]]:
    """Of the star-tree benchmark's tree."""
    num_rows = 2 * SEGMENT_ROWS
    table = rows_of(f"ssb-{num_rows}", lambda: ssb_data.generate(num_rows))
    with tempfile.TemporaryDirectory() as folder:
        points = [(count, built_s(table.slice(0, count).combine_chunks(), Path(folder), 3)) for count in ROWS]
    print(f"star-tree: {', '.join(f'{x:,} rows {y:.3f} s' for x, y in points)}", flush=True)
    return [(float(count), seconds) for count, seconds in points]
