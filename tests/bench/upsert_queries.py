"""What valid docs cost: SSB's thirteen queries over segments of which a fifth of the docs was replaced, beside the same
segments whose docs all count.

`python -m tests.bench.upsert_queries [--quick]`. One thread, CPU time, so that other programs on the machine do not
count; 6 M rows in 8 segments. Which docs are valid is drawn at random: upserts come in no order of the columns. Answers
are compared with those over segments of just the valid rows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
from tests.bench import report, ssb, ssb_data
from tests.bench.report import Case

from merlot.query.context import ExecutionContext
from merlot.segment.index.nulls import words_of
from merlot.segment.reader import Segment, SomeDocs
from merlot.segment.segment_view import SegmentView

INVALID = 0.2
MORE = {
    "count": "SELECT COUNT(*) FROM ssb",
    "extremes": "SELECT MIN(lo_revenue), MAX(lo_revenue) FROM ssb",
    "by year": "SELECT d_year, COUNT(*), SUM(lo_revenue) FROM ssb GROUP BY d_year",
    "distinct": "SELECT COUNT(DISTINCT lo_custkey) FROM ssb",
    "equal": "SELECT COUNT(*) FROM ssb WHERE c_nation = 'CHINA'",
}


def cpu_ms(ours: ssb.Engine, sql: str, repeats: int) -> float:
    """Median of this thread's time."""
    times = []
    for _ in range(repeats):
        started = time.thread_time()
        ours.query(sql)
        times.append(time.thread_time() - started)
    return statistics.median(times) * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="600,000 rows, 5 repeats")
    rows, repeats = (600_000, 5) if parser.parse_args().quick else (ssb_data.ROWS, 11)
    table = ssb.rows_of(f"ssb-{rows}", lambda: ssb_data.generate(rows))
    schema = ssb.schema_of(table)
    context = ExecutionContext(schema=schema)
    whole = ssb.engine("ssb", table, None)
    whole = replace(whole, context=context)
    is_valid = np.random.default_rng(7).random(rows) >= INVALID
    size = -(-rows // len(whole.segments))
    partly: list[Segment] = [
        SegmentView(segment, SomeDocs(words_of(is_valid[number * size : (number + 1) * size])))
        for number, segment in enumerate(whole.segments)
    ]
    upserted = replace(whole, segments=partly)
    theirs = ssb.duckdb_over(table.filter(pa.array(is_valid)))
    cases = []
    for name, sql in {**ssb_data.QUERIES, **MORE}.items():
        if not ssb.same(upserted.query(sql), theirs.execute(sql).fetchall()):
            raise SystemExit(f"{name}: answers differ from DuckDB's")
        cpu_ms(whole, sql, 2)
        # In turns: a machine that is slow for a while is slow for both.
        found = [(cpu_ms(upserted, sql, 1), cpu_ms(whole, sql, 1)) for _ in range(repeats)]
        mine, other = (statistics.median(one) for one in zip(*found, strict=True))
        cases.append(Case(name, "ms of CPU", mine, "every doc valid", other))
    thirteen = cases[: len(ssb_data.QUERIES)]
    cases.append(Case("geometric mean of 13", "ratio", report.geometric_mean(thirteen), "every doc valid", 1.0))
    report.publish("upsert_queries", f"SSB flat, {rows:,} rows, {INVALID:.0%} of them replaced, one thread", cases)


if __name__ == "__main__":
    main()
