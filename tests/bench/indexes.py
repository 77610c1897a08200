"""Indexes, each beside the scan of the same segments without it, and beside DuckDB over the same rows; what they take
on disk, and how fast they are built.

2 M rows of a column for each, 1 M of texts; `--quick` takes a tenth. 2 threads on both sides, plans made before.
Literals are drawn anew each run, by a seed that is printed. Answers of index, scan and DuckDB are compared before
anything is timed. An index is built as a server builds it for a segment that lacks it: from the stored column to the
file, after a small one that is not counted.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from tests.bench import report
from tests.bench.indexes_data import SUBJECTS, Question, Subject
from tests.bench.report import Case
from tests.bench.ssb import THREADS, Rows, duckdb_over, same

from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import to_pinot_rows
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.server.pruning import SetStatistics, prune
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

SELECT = "SELECT COUNT(*), SUM(m) FROM bench WHERE"
DUCKDB_SELECT = SELECT.replace("SUM(m)", "coalesce(SUM(m), 0)")
"""Of no rows Pinot's sum is 0."""
REPEATS = 9
WARM_ROWS = 1_000
SLOW_MS = 1_000.0
"""What takes longer is run once."""


@dataclass(frozen=True, slots=True)
class Server:
    """Segments of one table, asked as a server is asked: by their statistics first."""

    schema: TableSchema
    segments: Sequence[ImmutableSegment]
    statistics: SetStatistics
    context: ExecutionContext

    def planned(self, sql: str) -> Callable[[], list[list[object]]]:
        """What is left of a query whose plan is known, as a broker knows it; rows as it would write them."""
        logical = plan(bind(parse(sql), self.schema, {}))

        def answer() -> list[list[object]]:
            kept = prune(logical.leaf, self.segments, self.statistics, self.schema)
            return to_pinot_rows(reduce(logical, [execute(logical.leaf, kept.segments, self.context)], self.schema))

        return answer


@dataclass(frozen=True, slots=True)
class Indexed:
    """The segments of a subject with its index and without, and what that took."""

    bare: Sequence[ImmutableSegment]
    full: Sequence[ImmutableSegment]
    segment_s: float
    """CPU seconds of building the segments without the index."""
    index_s: float
    """CPU seconds of the index, from the stored column to the file."""
    index_bytes: int

    @property
    def segment_bytes(self) -> int:
        """Without the index."""
        return sum(segment.size_bytes for segment in self.bare)


def schema_of(subject: Subject) -> TableSchema:
    """Of a column c and a metric m."""
    fields = [{"name": "c", "type": subject.type}, {"name": "m", "type": "INT", "role": "metric"}]
    return TableSchema.model_validate({"fields": fields})


def indexed(subject: Subject, table: pa.Table, folder: Path) -> Indexed:
    """Build the segments, then the index of each."""
    schema = schema_of(subject)
    bare, full, segment_s, index_s, index_bytes = [], [], 0.0, 0.0, 0
    indexing = IndexingSpec.model_validate({subject.kind: ("c",)})
    stored = IndexingSpec.model_validate({"encodings": {"c": subject.encoding}})
    size = -(-table.num_rows // subject.num_segments)
    for number in range(subject.num_segments):
        rows = table.slice(number * size, size).combine_chunks()
        request = BuildRequest(name=f"{subject.kind}_{number}", table="bench", schema=schema, indexing=stored)
        started = time.process_time()
        segment = ImmutableSegment.open(build_segment(request, rows, folder).path)
        segment_s += time.process_time() - started
        wanted = plan_of(segment.metadata, indexing)
        started = time.process_time()
        path = build_sidecar(segment, wanted, indexing, folder)
        index_s += time.process_time() - started
        index_bytes += path.stat().st_size
        bare.append(segment)
        full.append(segment.beside(Sidecar.open(path, segment.metadata)))
    return Indexed(bare, full, segment_s, index_s, index_bytes)


def raw_bytes(column: pa.ChunkedArray) -> int:
    """Of the values alone: UTF-8, or numbers of their width."""
    if pa.types.is_string(column.type):
        return sum(len(chunk.buffers()[2]) for chunk in column.chunks)
    return int(column.nbytes)


def checked_ms(server: Server, question: Question, expected: Rows, repeats: int, name: str) -> float:
    """Median ms of the question; of the run that is compared, if that is slow. Raises SystemExit if answers differ."""
    answer = server.planned(f"{SELECT} {question.where}")
    started = time.perf_counter()
    found = answer()
    once = (time.perf_counter() - started) * 1000
    if not same(found, expected):
        raise SystemExit(f"{name}: another answer than DuckDB's: {question.where}")
    return once if once > SLOW_MS else report.median_ms(answer, repeats)


@dataclass(frozen=True, slots=True)
class Measured:
    """Cases by what they are beside."""

    by_scan: list[Case]
    by_duckdb: list[Case]
    by_size: list[Case]
    by_build: list[Case]


def measure(subject: Subject, num_rows: int, repeats: int, chosen: random.Random, into: Measured) -> None:
    """All of one index; raises SystemExit where answers differ."""
    print(f"{subject.kind}: {num_rows:,} rows …", file=sys.stderr)
    table = subject.table(num_rows)
    questions = subject.questions(chosen, table["c"])
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(THREADS) as pool:
        indexed(subject, table.slice(0, WARM_ROWS), Path(folder))
        made = indexed(subject, table, Path(folder))
        schema = schema_of(subject)
        context = ExecutionContext(schema=schema, pool=pool, threads=THREADS)
        by_index, by_scan = (Server(schema, one, SetStatistics(one), context) for one in (made.full, made.bare))
        with duckdb_over(table, "bench") as theirs:
            for question in questions:
                name = f"{subject.kind} {question.name}"
                theirs.execute(f"PREPARE asked AS {DUCKDB_SELECT} {question.duckdb}")
                expected: Rows = theirs.execute("EXECUTE asked").fetchall()
                scan_ms = checked_ms(by_scan, question, expected, repeats, f"{name}, by scan")
                index_ms = checked_ms(by_index, question, expected, repeats, f"{name}, by index")
                duckdb_ms = report.median_ms(lambda: theirs.execute("EXECUTE asked").fetchall(), repeats)
                name = f"{name}, {expected[0][0]:,} of {num_rows:,}"
                into.by_scan.append(Case(name, "ms", index_ms, "scan", scan_ms))
                into.by_duckdb.append(Case(name, "ms", index_ms, "duckdb", duckdb_ms))
    raw, mega = raw_bytes(table["c"]), 1e6
    name, ours = subject.kind, made.index_bytes / mega
    into.by_size.append(Case(f"{name}, of the column's values", "MB", ours, "whole", raw / mega))
    into.by_size.append(Case(f"{name}, of the segment", "MB", ours, "whole", made.segment_bytes / mega))
    rates = (num_rows / made.index_s, num_rows / made.segment_s)
    into.by_build.append(Case(name, "rows/s of a core", rates[0], "segment", rates[1]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, 3 repeats")
    parser.add_argument("--rows", type=int, default=None, help="of each; 2,000,000 unless given, 1,000,000 of texts")
    parser.add_argument("--seed", type=int, default=None, help="of the literals; another one each time unless given")
    parser.add_argument("--only", nargs="*", default=(), choices=[one.kind for one in SUBJECTS], help="kinds of index")
    asked = parser.parse_args(arguments)
    repeats = 3 if asked.quick else REPEATS
    seed = random.SystemRandom().randrange(1 << 31) if asked.seed is None else asked.seed
    print(f"seed {seed}, load {os.getloadavg()[0]:.2f}", file=sys.stderr)
    found = Measured([], [], [], [])
    for subject in SUBJECTS:
        if not asked.only or subject.kind in asked.only:
            num_rows = asked.rows or (subject.num_rows // 10 if asked.quick else subject.num_rows)
            measure(subject, num_rows, repeats, random.Random(seed), found)
    told = f"{THREADS} threads, seed {seed}, load {os.getloadavg()[0]:.2f}"
    report.publish("indexes", f"Indexes beside scans, {told}", found.by_scan)
    report.publish("indexes_duckdb", "Indexes beside DuckDB", found.by_duckdb)
    report.publish("indexes_size", "Size of indexes", found.by_size)
    report.publish("indexes_build", "Indexes built beside the segment without them", found.by_build)


if __name__ == "__main__":
    main()
