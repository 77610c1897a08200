"""What `maxLeafRecords` decides: documents and bytes of a star-tree, and what queries take."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from examples.demos.line_charts import Panel, Series, line_chart
from tests.bench import ssb_data
from tests.bench.report import median_ms
from tests.bench.ssb import Engine, rows_of, same, schema_of
from tests.bench.star_tree import SEGMENT_ROWS, SPEC, planned

from merlot.query.context import ExecutionContext
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.spec.indexing import IndexingSpec

LEAVES: Final = (1, 10, 100, 1_000, 10_000, 100_000)
DIMENSIONS: Final = ("p_category", "c_city", "d_year", "lo_discount", "s_region")
"""Those of the benchmark by city, and discounts: enough combinations for leaves of any size to matter."""
ASKED: Final = {
    "sum of all": "SELECT SUM(lo_revenue) FROM ssb",
    "city = and region =": "SELECT SUM(lo_revenue) FROM ssb WHERE c_city = 'FRANCE   3' AND s_region = 'ASIA'",
    "by year": "SELECT d_year, SUM(lo_revenue) FROM ssb GROUP BY d_year LIMIT 100",
    "by city and year": "SELECT c_city, d_year, SUM(lo_revenue) FROM ssb GROUP BY 1, 2 LIMIT 100000",
}
REPEATS: Final = 15
MIB: Final = 1 << 20


def star_tree_leaves() -> str:
    """Measure and draw."""
    num_rows = 2 * SEGMENT_ROWS
    rows = rows_of(f"ssb-{num_rows}", lambda: ssb_data.generate(num_rows)).slice(0, SEGMENT_ROWS).combine_chunks()
    schema = schema_of(rows)
    documents: list[tuple[float, float]] = []
    sizes: list[tuple[float, float]] = []
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ASKED}
    with tempfile.TemporaryDirectory() as folder:
        stored = IndexingSpec(encodings=dict.fromkeys(DIMENSIONS, "DICTIONARY"))
        request = BuildRequest(name="ssb_0", table="ssb", schema=schema, indexing=stored)
        bare = ImmutableSegment.open(build_segment(request, rows, Path(folder)).path)
        context = ExecutionContext(schema=schema)
        expected = {name: Engine(schema, [bare], context).query(sql) for name, sql in ASKED.items()}
        for leaf in LEAVES:
            spec = SPEC.model_copy(update={"dimensions_split_order": DIMENSIONS, "max_leaf_records": leaf})
            indexing = IndexingSpec(star_tree_index_configs=(spec,))
            path = build_sidecar(bare, plan_of(bare.metadata, indexing), indexing, Path(folder))
            segment = bare.beside(Sidecar.open(path, bare.metadata))
            engine = Engine(schema, [segment], context)
            documents.append((leaf, segment.star_trees[0].num_docs))
            sizes.append((leaf, path.stat().st_size / MIB))
            for name, sql in ASKED.items():
                if not same(engine.query(sql), [tuple(row) for row in expected[name]]):
                    raise SystemExit(f"{name}: the tree of leaves of {leaf} answers otherwise than the rows")
                times[name].append((leaf, median_ms(planned(engine, sql), REPEATS)))
            print(f"{leaf}: {documents[-1][1]:,} documents, {[round(one[-1][1], 3) for one in times.values()]}")
    panels = [
        Panel("documents", [Series("documents", documents)]),
        Panel("size of the tree, MiB", [Series("size", sizes)]),
        Panel("ms, one thread", [Series(name, points) for name, points in times.items()], is_log=True),
    ]
    title = f"A star-tree of {SEGMENT_ROWS:,} rows by {', '.join(DIMENSIONS)}"
    return line_chart(title, "maxLeafRecords", panels, is_log=True)
