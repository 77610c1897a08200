"""Time of a query against how many of the rows it wants: by scan, by indexes, by sorted rows and by star-tree.

What is drawn for an index is what a query with it takes: past some share of the rows that is a scan again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from examples.demos.line_charts import Panel, Series, line_chart
from tests.bench.report import median_ms

from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import to_pinot_rows
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

ROWS: Final = 4_000_000
VALUES: Final = 100_000
SHARES: Final = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
REPEATS: Final = 15
SCHEMA: Final = TableSchema.model_validate(
    {"fields": [{"name": "c", "type": "INT"}, {"name": "m", "type": "INT", "role": "metric"}]}
)
TREE: Final = {"dimensions_split_order": ["c"], "function_column_pairs": ["SUM__m"], "max_leaf_records": 1}
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "scan": {},
    "inverted": {"inverted": ["c"]},
    "range": {"range": ["c"]},
    "sorted": {"sorted_columns": ["c"]},
    "star-tree": {"star_tree_index_configs": [TREE]},
}
"""What a table declares for each."""


def selectivity() -> str:
    """Measure and draw."""
    generator = np.random.default_rng(7)
    values, metric = generator.integers(0, VALUES, ROWS), generator.integers(0, 1000, ROWS)
    rows = pa.table({"c": values.astype(np.int32), "m": metric.astype(np.int32)})
    sums = np.bincount(values, metric, minlength=VALUES)
    with tempfile.TemporaryDirectory() as folder:
        series = [Series(name, _points(name, declared, rows, sums, Path(folder))) for name, declared in WAYS.items()]
    title = f"SELECT SUM(m) WHERE c BETWEEN …: {ROWS:,} rows, {VALUES:,} values, one thread"
    return line_chart(title, "rows that match, % of all", [Panel("ms", series, is_log=True)], is_log=True)


def _points(
    name: str, declared: Mapping[str, Any], rows: pa.Table, sums: np.ndarray[Any, Any], folder: Path
) -> list[tuple[float, float]]:
    indexing = IndexingSpec.model_validate({**declared, "encodings": {"c": "DICTIONARY"}})
    request = BuildRequest(name=name, table="t", schema=SCHEMA, indexing=indexing)
    segment = ImmutableSegment.open(build_segment(request, rows, folder).path)
    context = ExecutionContext(schema=SCHEMA)
    points = []
    for share in SHARES:
        count = round(VALUES * share)
        low = (VALUES - count) // 2
        logical = plan(bind(parse(f"SELECT SUM(m) FROM t WHERE c BETWEEN {low} AND {low + count - 1}"), SCHEMA, {}))

        def answer(logical: Any = logical) -> list[list[object]]:
            return to_pinot_rows(reduce(logical, [execute(logical.leaf, [segment], context)], SCHEMA))

        [[found]] = answer()
        if found != sums[low : low + count].sum():
            raise SystemExit(f"{name} of {share:%}: {found} instead of {sums[low : low + count].sum()}")
        points.append((share * 100, median_ms(answer, REPEATS)))
    print(f"{name}: {', '.join(f'{x:g} % {y:.2f} ms' for x, y in points)}", flush=True)
    return points
