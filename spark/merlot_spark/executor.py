"""What runs on executors where rows are built: put a lot's rows in order, build one segment after another, upload each.

Functions here become mapInArrow functions. They hold one lot at a time, and talk to the driver by rows only: counts
that travel as rows are exact when Spark retries a task, which accumulators are not.
"""

from __future__ import annotations

import itertools
import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from merlot.catalog.publish import record_of
from merlot.ingest import grouping, row_order, transform
from merlot.ingest.batch import build_group
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.metadata import CreationFacts
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import COLUMN_TYPES, FieldSpec, TableSchema
from merlot.spec.table import Table, TableSpec
from merlot.store.deepstore import DeepStore
from merlot_spark import parcels
from merlot_spark.preparing import BatchFunction, read_table

RESULT_SCHEMA = pa.schema([("kind", pa.string()), ("value", pa.string())])
BUILDER = "merlot_spark"


@dataclass(frozen=True, kw_only=True)
class BuildTask:
    """What an executor needs to build: plain data, since it travels in the task."""

    manifest_text: str
    deep_store: str
    present: frozenset[str] = frozenset()
    """URLs that the deep store has already; those files are not uploaded again."""
    on_built: Callable[[int], None] | None = None
    name_suffix: str = ""
    """What the names of the segments end with."""


def build(task: BuildTask) -> BatchFunction:
    """Parcels, sorted by lot, to result rows: (segment, JSON) per segment, (counts, JSON) passed on."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = read_table(task.manifest_text)
        with tempfile.TemporaryDirectory(prefix="merlot-build-") as folder:
            builder = _Builder(table, task, Path(folder))
            for content in parcels.opened(batches, parcels.rows_schema(table)):
                if isinstance(content, str):
                    yield _result("counts", content)
                    continue
                for key, rows in groups(content, table):
                    yield _result("segment", builder.build(key, rows))
                    if task.on_built is not None:
                        task.on_built(1)

    return run


def warm() -> None:
    """Build a tiny segment, so that whatever forks from this process has the builder's kernels compiled."""
    fields = [FieldSpec(name=str(name).lower(), type=name) for name in COLUMN_TYPES]
    schema = TableSchema(fields=tuple(fields))
    texts = pa.table({field.name: ["1", "0", None] for field in fields})
    rows = transform.conform(texts, TableSpec(table_schema=schema)).rows
    indexing = IndexingSpec(inverted=("int",), no_dictionary=("double",))
    request = BuildRequest(name="warm", table="warm", schema=schema, indexing=indexing)
    with tempfile.TemporaryDirectory(prefix="merlot-warm-") as folder:
        build_segment(request, rows, Path(folder))


def groups(rows: pa.Table, table: Table) -> Iterator[tuple[tuple[int, ...], pa.Table]]:
    """The rows of each key, in the declared order, then that of time, then that of all other columns: equal rows give
    equal files."""
    spec = table.spec
    names = parcels.key_names(table)
    time = [] if spec.time_column is None else [spec.time_column]
    rows = row_order.ordered(rows, list(dict.fromkeys([*names, *spec.indexing.sorted_columns, *time])))
    keys = [rows.column(name).to_numpy() for name in names]
    changed = np.zeros(rows.num_rows - 1, dtype=bool)
    for key in keys:
        changed |= key[1:] != key[:-1]
    content = rows.select(spec.table_schema.names)
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), rows.num_rows]
    for start, stop in itertools.pairwise(bounds):
        yield tuple(int(key[start]) for key in keys), content.slice(start, stop - start)


class _Builder:
    """Builds and uploads the segments of one task."""

    def __init__(self, table: Table, task: BuildTask, folder: Path) -> None:
        self._table = table
        self._task = task
        self._folder = folder
        self._store = DeepStore(task.deep_store)

    def build(self, key: tuple[int, ...], rows: pa.Table) -> str:
        started = time.monotonic()
        group = grouping.group_of(key, self._table.spec)
        creation = CreationFacts(host=socket.gethostname(), time_ms=time.time_ns() // 1_000_000, builder=BUILDER)
        suffix = self._task.name_suffix
        built = build_group(self._table, group, rows, self._folder, creation, name_suffix=suffix)
        url = self._store.url_of(self._table.name, built.metadata.key)
        is_new = url not in self._task.present
        if is_new:
            self._store.put(built.path, url)
        built.path.unlink()
        record = record_of(built.metadata, url, built.size_bytes, built.blooms)
        seconds = round(time.monotonic() - started, 4)
        facts = {"uploaded": is_new, "seconds": seconds, "unpartitioned": dict(built.unpartitioned)}
        return json.dumps({"record": record.model_dump(mode="json", by_alias=True, exclude_defaults=True), **facts})


def _result(kind: str, value: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([kind]), pa.array([value])], schema=RESULT_SCHEMA)
