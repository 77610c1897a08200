"""Thirteen queries of the flat Star Schema Benchmark beside DuckDB: 6 M rows, 8 segments, 2 threads each.

Twice: in the generator's order (dates unsorted: every query reads every segment), and sorted by date. Answers are
compared before anything is timed. Rows and segments are kept under build/bench; `--quick` takes 600,000 rows.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from tests.bench import report, ssb_data
from tests.bench.planned import TextPlans
from tests.bench.report import Case

import merlot.segment
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import to_pinot_rows
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.shortcuts import scalar_aggregates
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import Segment
from merlot.spec.schema import TableSchema

SEGMENTS = 8
THREADS = 2
REPEATS = 15
CACHE = report.ROOT / "build" / "bench" / "data"
METRICS = frozenset({"lo_quantity", "lo_discount", "lo_extendedprice", "lo_revenue", "lo_supplycost", "lo_tax"})
Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class Engine:
    """Segments of one table and what runs queries over them."""

    schema: TableSchema
    segments: Sequence[Segment]
    context: ExecutionContext

    @cached_property
    def plans(self) -> TextPlans:
        """What a broker knows of texts."""
        return TextPlans(self.schema)

    def query(self, sql: str) -> list[list[object]]:
        """Rows as a broker would write them; the text is planned each time."""
        logical = self.plans.plan(sql)
        partials = [execute(logical.leaf, self.segments, self.context)]
        row = scalar_aggregates.answer(logical, partials)
        return [row[2]] if row is not None else to_pinot_rows(reduce(logical, partials, self.schema))


def schema_of(table: pa.Table, metrics: frozenset[str] = METRICS) -> TableSchema:
    """INT, LONG, DOUBLE and STRING columns; the named ones are metrics."""
    names = {pa.int32(): "INT", pa.int64(): "LONG", pa.string(): "STRING", pa.float64(): "DOUBLE"}
    fields = [
        {
            "name": field.name,
            "type": "TIMESTAMP" if pa.types.is_timestamp(field.type) else names[field.type],
            "role": "metric" if field.name in metrics else "dimension",
        }
        for field in table.schema
    ]
    return TableSchema.model_validate({"fields": fields})


def build(name: str, table: pa.Table, num_segments: int) -> list[Path]:
    """Segments of equal size, built unless the same rows and the same builder made them before."""
    size = math.ceil(table.num_rows / num_segments)
    paths = paths_of(name, table.num_rows, num_segments)
    folder = paths[0].parent
    if all(path.exists() for path in paths):
        return paths
    for older in CACHE.glob(f"{folder.name.rpartition('-')[0]}-*"):
        shutil.rmtree(older)
    folder.mkdir(parents=True, exist_ok=True)
    schema = schema_of(table)
    for number, path in enumerate(paths):
        print(f"building {path.name} …", file=sys.stderr)
        rows = table.slice(number * size, size).combine_chunks()
        build_segment(BuildRequest(name=path.stem, table="ssb", schema=schema), rows, folder)
    return paths


def paths_of(name: str, num_rows: int, num_segments: int) -> list[Path]:
    """Where `build` puts the segments of a table of so many rows."""
    folder = CACHE / f"{name}-{num_rows}-{num_segments}-{_builder_version()}"
    return [folder / f"{name}_{number}.mseg" for number in range(num_segments)]


def _builder_version() -> str:
    """Changes with any source of the segment package."""
    sources = sorted(Path(merlot.segment.__path__[0]).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def rows_of(name: str, generate: Callable[[], pa.Table]) -> pa.Table:
    """A generated table, kept as Parquet."""
    path = CACHE / f"{name}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"generating {path.name} …", file=sys.stderr)
        pq.write_table(generate(), path, compression="zstd")
    return pq.read_table(path).combine_chunks()


def kept_schema(name: str) -> pa.Schema:
    """The schema of a table that `rows_of` keeps."""
    return pq.read_schema(CACHE / f"{name}.parquet")


def engine(name: str, table: pa.Table, pool: ThreadPoolExecutor, num_segments: int = SEGMENTS) -> Engine:
    """An engine over built segments."""
    segments = [ImmutableSegment.open(path) for path in build(name, table, num_segments)]
    schema = schema_of(table)
    return Engine(schema, segments, ExecutionContext(schema=schema, pool=pool, threads=THREADS))


def duckdb_over(table: pa.Table, name: str = "ssb") -> duckdb.DuckDBPyConnection:
    """An in-memory table of DuckDB with plain columns."""
    connection = duckdb.connect(config={"threads": THREADS})
    connection.register("arrow_rows", table)
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow_rows")
    connection.unregister("arrow_rows")
    return connection


def same(ours: list[list[object]], theirs: Rows) -> bool:
    """Equal answers; sums are compared as doubles."""
    if len(ours) != len(theirs):
        return False
    return all(
        _close(left, right)
        for mine, other in zip(sorted(ours, key=_key), sorted(map(list, theirs), key=_key), strict=True)
        for left, right in zip(mine, other, strict=True)
    )


def _key(row: list[object]) -> list[str]:
    return [f"{float(value):.6e}" if isinstance(value, int | float) else str(value) for value in row]


def _close(left: object, right: object) -> bool:
    if isinstance(left, int | float) and not isinstance(right, str):
        return math.isclose(left, float(right), rel_tol=1e-9, abs_tol=1e-9)  # type: ignore[arg-type]
    return left == right


def compare(
    prefix: str, ours: Engine, theirs: duckdb.DuckDBPyConnection, queries: dict[str, str], repeats: int
) -> list[Case]:
    """Cases of one data set; raises SystemExit where answers differ."""
    cases = []
    for name, sql in queries.items():
        if not same(ours.query(sql), theirs.execute(sql).fetchall()):
            raise SystemExit(f"{prefix}{name}: answers differ from DuckDB's")
        mine = report.median_ms(lambda sql=sql: ours.query(sql), repeats)
        other = report.median_ms(lambda sql=sql: theirs.execute(sql).fetchall(), repeats)
        cases.append(Case(prefix + name, "ms", mine, "duckdb", other))
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="600,000 rows, 5 repeats")
    arguments = parser.parse_args()
    rows, repeats = (600_000, 5) if arguments.quick else (ssb_data.ROWS, REPEATS)
    unsorted = rows_of(f"ssb-{rows}", lambda: ssb_data.generate(rows))
    cases: list[Case] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for label in ("", "sorted "):
            table = ssb_data.sort_by_date(unsorted) if label else unsorted
            ours = engine(f"ssb{label.strip()}", table, pool)
            theirs = duckdb_over(table)
            measured = compare(label, ours, theirs, ssb_data.QUERIES, repeats)
            mean = report.geometric_mean(measured)
            cases += [*measured, Case(f"{label}geometric mean of 13", "ratio", mean, "duckdb", 1.0)]
            if not label:
                cases += compare("", ours, theirs, ssb_data.MORE_QUERIES, repeats)
            theirs.close()
    report.publish("ssb", f"SSB flat, {rows:,} rows, {SEGMENTS} segments, {THREADS} threads, ms", cases)


if __name__ == "__main__":
    main()
