"""Star-trees over flat Star Schema Benchmark rows: build rate, share of the segment, and queries beside the same
segments' rows. 6 M rows in 8 segments, 2 threads; `--quick` takes 1.5 M rows in 2.

The tree is that of the figures of Pinot which are quoted beside ours: four dimensions, two sums and the count, 10,000
leaf records. Each answer is compared with the rows' before anything is timed. Plans are made before.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from tests.bench import report, ssb_data
from tests.bench.report import Case
from tests.bench.ssb import THREADS, Engine, rows_of, same, schema_of

from merlot.query.answer.reduce import reduce
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.query.shortcuts import scalar_aggregates
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.inspect import describe
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.spec.indexing import Encoding, IndexingSpec
from merlot.spec.star_tree import StarTreeSpec
from merlot.sql.parse import parse

SEGMENT_ROWS = 750_000
SPEC = StarTreeSpec(
    dimensions_split_order=("p_category", "c_nation", "d_year", "s_region"),
    function_column_pairs=("COUNT__*", "SUM__lo_revenue", "SUM__lo_supplycost"),
)
INDEXING = IndexingSpec(star_tree_index_configs=(SPEC,))
QUERIES = {
    "SUM over all": ("SELECT SUM(lo_revenue) FROM ssb", 2.5),
    "group by year, nation": (
        "SELECT d_year, c_nation, SUM(lo_revenue) FROM ssb GROUP BY d_year, c_nation LIMIT 100000",
        7.5,
    ),
    "nation = and region =": (
        "SELECT SUM(lo_revenue) FROM ssb WHERE c_nation = 'FRANCE' AND s_region = 'ASIA'",
        2.1,
    ),
    "year = and region =, by category": (
        "SELECT p_category, SUM(lo_revenue) FROM ssb WHERE d_year = 1994 AND s_region = 'ASIA' GROUP BY 1 LIMIT 100",
        2.7,
    ),
    "by category, two SUMs": (
        "SELECT p_category, SUM(lo_revenue), SUM(lo_supplycost) FROM ssb GROUP BY p_category LIMIT 100",
        2.2,
    ),
}
"""With what Pinot 1.5.1 took from star-trees over 6 M rows in 8 segments on a machine of two cores, in ms."""
PINOT_ROWS_PER_S = 1_090_000
PINOT_SHARE = 2.6


def segments_of(folder: Path, table: pa.Table, stack: ExitStack) -> list[ImmutableSegment]:
    """The rows as segments of equal size, each with the tree."""
    opened = []
    for number, start in enumerate(range(0, table.num_rows, SEGMENT_ROWS)):
        print(f"building segment {number} …", file=sys.stderr)
        rows = table.slice(start, SEGMENT_ROWS).combine_chunks()
        request = BuildRequest(
            name=f"ssb_{number}",
            table="ssb",
            schema=schema_of(rows),
            indexing=INDEXING,
        )
        opened.append(stack.enter_context(ImmutableSegment.open(build_segment(request, rows, folder).path)))
    return opened


def built_s(rows: pa.Table, folder: Path, repeats: int) -> float:
    """CPU seconds of a tree, from a segment's columns as they are stored to a file that is whole: the median of some.

    Columns are read and decoded, rows aggregated, the tree written, as a server does for a segment that lacks it. What
    columns took to be stored, dictionaries included, is not of the tree."""
    dictionaries = dict.fromkeys(SPEC.dimensions_split_order, Encoding.DICTIONARY)
    stored, wanted = IndexingSpec(encodings=dictionaries), INDEXING
    request = BuildRequest(name="bare", table="ssb", schema=schema_of(rows), indexing=stored)
    path = build_segment(request, rows, folder).path
    seconds = []
    for _ in range(repeats + 1):
        # Opened anew: what was decoded is kept with a segment.
        with ImmutableSegment.open(path) as segment:
            lacks = plan_of(segment.metadata, wanted)
            started = time.process_time()
            build_sidecar(segment, lacks, wanted, folder)
            seconds.append(time.process_time() - started)
    return statistics.median(seconds[1:])


def planned(engine: Engine, sql: str) -> Callable[[], object]:
    """What is left of a query whose plan is known, as a broker knows it."""
    logical = plan(bind(parse(sql), engine.schema, {}))

    def answer() -> object:
        partials = [execute(logical.leaf, engine.segments, engine.context)]
        return scalar_aggregates.answer(logical, partials) or reduce(logical, partials, engine.schema)

    return answer


def compare(engine: Engine, repeats: int) -> list[Case]:
    """Queries by tree and by rows, then by tree and by Pinot's. Raises SystemExit where answers differ."""
    by_rows, by_pinot = [], []
    for name, (sql, pinot_ms) in QUERIES.items():
        rows_sql = f"SET useStarTree=false; {sql}"
        if not same(engine.query(sql), [tuple(row) for row in engine.query(rows_sql)]):
            raise SystemExit(f"{name}: answers of tree and rows differ")
        tree_ms = report.median_ms(planned(engine, sql), repeats)
        rows_ms = report.median_ms(planned(engine, rows_sql), repeats)
        by_rows.append(Case(name, "ms", tree_ms, "rows", rows_ms))
        by_pinot.append(Case(f"{name}, Pinot's star-tree", "ms", tree_ms, "pinot", pinot_ms))
    return [*by_rows, Case("geometric mean", "ratio", report.geometric_mean(by_rows), "rows", 1.0), *by_pinot]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,500,000 rows in 2 segments, 5 repeats")
    quick = parser.parse_args(arguments).quick
    num_rows, repeats = (2 * SEGMENT_ROWS, 5) if quick else (ssb_data.ROWS, 15)
    table = rows_of(f"ssb-{num_rows}", lambda: ssb_data.generate(num_rows))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        segments = segments_of(folder, table, stack)
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        schema = schema_of(table)
        engine = Engine(
            schema, segments, ExecutionContext(schema=schema, indexing=INDEXING, pool=pool, threads=THREADS)
        )
        cases = compare(engine, repeats)
        rate = SEGMENT_ROWS / built_s(table.slice(0, SEGMENT_ROWS).combine_chunks(), folder, 5)
        cases.append(Case("built per core", "rows/s", rate, "pinot", PINOT_ROWS_PER_S))
        shown = describe(segments[0].path)
        [tree] = shown.star_trees
        share = 100 * tree.size_bytes / (shown.size_bytes - tree.size_bytes)
        cases.append(Case(f"size, {tree.num_docs:,} documents", "% of the rest", share, "pinot", PINOT_SHARE))
    report.publish("star_tree", f"Star-trees, SSB flat, {num_rows:,} rows, {len(segments)} segments", cases)


if __name__ == "__main__":
    main()
