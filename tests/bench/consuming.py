"""A consuming segment: rows appended per second, memory per row, and queries beside the same rows sealed.

`python -m tests.bench.consuming [--quick]`. One thread; rows as a decoder makes them from JSON of 97 bytes (two keys,
two texts of few values, a time, a metric). Appending alone: decoding is `ingest`'s to measure. All times are of one
thread's CPU, so that other programs on the machine do not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.bench.report import Case, publish

from merlot.query.answer.reduce import reduce
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.reader import Segment
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

ROWS = 1_000_000
BATCHES = (100, 1_000, 10_000)
PINOT_ROWS_PER_S = 171_000
"""Median while consuming, decoding included (Pinot 1.6, one core)."""
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "id", "type": "LONG"},
            {"name": "user", "type": "STRING"},
            {"name": "city", "type": "STRING"},
            {"name": "kind", "type": "STRING"},
            {"name": "ts", "type": "TIMESTAMP", "role": "dateTime", "format": "TIMESTAMP"},
            {"name": "amount", "type": "DOUBLE", "role": "metric"},
        ]
    }
)
QUERIES = {
    "count": "SELECT COUNT(*) FROM t WHERE city = 'city17'",
    "range": "SELECT COUNT(*), SUM(amount) FROM t WHERE id BETWEEN 1000 AND 400000",
    "sum": "SELECT SUM(amount), MIN(id), MAX(ts) FROM t",
    "group": "SELECT city, COUNT(*), SUM(amount) FROM t GROUP BY city LIMIT 1000",
    "group by two": "SELECT city, kind, MAX(amount) FROM t GROUP BY city, kind LIMIT 10000",
    "group by many": "SELECT user, COUNT(*) FROM t GROUP BY user ORDER BY COUNT(*) DESC, user LIMIT 10",
    "like": "SELECT COUNT(*) FROM t WHERE user LIKE '%99%'",
    "point": "SELECT id, user, amount FROM t WHERE user = 'user4711' LIMIT 1000",
    "top": "SELECT city, id FROM t WHERE kind <> 'view' ORDER BY city, id DESC LIMIT 10",
    "distinct": "SELECT DISTINCTCOUNT(user), DISTINCTCOUNT(kind) FROM t",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    num_rows = ROWS // 10 if parser.parse_args().quick else ROWS
    rows = generate(num_rows)
    fill(rows.slice(0, 1000), 100)
    before = resident_bytes()
    segment, _ = fill(rows, 1000)
    # First of all: later segments live in memory that earlier ones gave back.
    resident = (resident_bytes() - before) / num_rows
    cases = []
    for size in BATCHES:
        fill(rows.slice(0, min(num_rows, 50 * size)), size)
        segment, seconds = fill(rows, size)
        rate = num_rows / seconds / 1000
        cases.append(Case(f"append by {size}", "k rows/s", rate, "Pinot with decoding", PINOT_ROWS_PER_S / 1000))
    cases.append(Case("memory", "bytes/row", segment.memory_bytes / num_rows, "rows as Arrow", rows.nbytes / num_rows))
    cases.append(Case("resident", "bytes/row", resident, "its own count", segment.memory_bytes / num_rows))
    cases.append(Case("snapshot", "us", snapshot_us(segment), "", 0.0))
    with tempfile.TemporaryDirectory(prefix="consuming_") as folder:
        started = time.perf_counter()
        sealed = segment.seal(Path(folder), num_rows)
        print(
            f"sealed {num_rows} rows in {time.perf_counter() - started:.2f} s, {sealed.size_bytes / num_rows:.1f} B/row"
        )
        with ImmutableSegment.open(sealed.path) as file:
            for name, sql in QUERIES.items():
                assert answer(sql, segment.snapshot()) == answer(sql, file), sql
                ours = cpu_ms(lambda sql=sql: answer(sql, segment.snapshot()))
                theirs = cpu_ms(lambda sql=sql, file=file: answer(sql, file))
                cases.append(Case(name, "ms", ours, "sealed", theirs))
    publish("consuming", "Consuming segment", cases)


def generate(num_rows: int) -> pa.Table:
    """Events, in the order of their time."""
    random = np.random.default_rng(7)
    users = pa.array([f"user{number}" for number in range(20_000)])
    cities = pa.array([f"city{number}" for number in range(300)])
    kinds = pa.array(["view", "click", "buy", "return"])
    return pa.table(
        {
            "id": random.permutation(num_rows),
            "user": users.take(pa.array(random.integers(0, len(users), num_rows))),
            "city": cities.take(pa.array(random.zipf(1.3, num_rows) % len(cities))),
            "kind": kinds.take(pa.array(random.integers(0, len(kinds), num_rows))),
            "ts": pa.array(1_700_000_000_000 + np.arange(num_rows) * 3).cast(pa.timestamp("ms")),
            "amount": np.round(random.gamma(2, 30, num_rows), 2),
        }
    )


def fill(rows: pa.Table, size: int) -> tuple[ConsumingSegment, float]:
    """A segment of all rows, appended so many at a time, and how long that took."""
    segment = ConsumingSegment(BuildRequest(name="t__0__0__x", table="t", schema=SCHEMA, time_column="ts"), 0)
    batches = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
    offsets = np.arange(rows.num_rows)
    started = time.thread_time()
    for number, batch in enumerate(batches):
        start = number * size
        stop = start + batch.num_rows
        segment.append(batch, offsets[start:stop], stop)
    return segment, time.thread_time() - started


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_ms(action: Callable[[], object]) -> float:
    """Median of some runs after one that is not counted."""
    action()
    times = []
    for _ in range(11):
        started = time.thread_time()
        action()
        times.append(time.thread_time() - started)
    return statistics.median(times) * 1000


def snapshot_us(segment: ConsumingSegment) -> float:
    """One, with a reader of a column."""
    times = []
    for _ in range(1000):
        started = time.perf_counter()
        segment.snapshot().column("amount")
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def answer(sql: str, segment: Segment) -> list[tuple[object, ...]]:
    """Rows of the answer, in an order that does not depend on the segment."""
    query = plan(bind(parse(sql), SCHEMA))
    table = reduce(query, [execute(query.leaf, [segment], ExecutionContext(schema=SCHEMA))], SCHEMA)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=str)


if __name__ == "__main__":
    main()
