"""Executor side of the build: sort a lot's rows, build one segment after another, upload each.

Functions here become mapInArrow functions. They hold one lot at a time, or 256 MB of it (`sorted_runs`). Results travel
to the driver as rows: counts are then exact when Spark retries a task. An accumulator, which is not, only shows
progress.
"""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from merlot.catalog.publish import record_of
from merlot.ingest import grouping, transform
from merlot.ingest.batch import request_of
from merlot.segment.build.builder import SegmentWriter, build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.metadata import CreationFacts
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import COLUMN_TYPES, FieldSpec, TableSchema
from merlot.spec.table import Table, TableSpec
from merlot.store.deepstore import DeepStore
from merlot_spark import parcels
from merlot_spark.lots import GroupRows
from merlot_spark.preparing import BatchFunction, read_table
from merlot_spark.sorted_runs import Lot

RESULT_SCHEMA = pa.schema([("kind", pa.string()), ("value", pa.string())])
BUILDER = "merlot_spark"
MAX_WAITING = 64
MAX_WAITING_BYTES = 64 << 20
"""Number and bytes of built segments that wait to be uploaded together: see `DeepStore.put_all`."""


@dataclass(frozen=True, kw_only=True)
class BuildTask:
    """Input of an executor's build: plain data, since it travels in the task."""

    manifest_text: str
    deep_store: str
    present: frozenset[str] = frozenset()
    """URLs that the deep store already has; those files are not uploaded again."""
    on_built: Callable[[int], None] | None = None
    """Called with the number of segments that were built; adds to the driver's accumulator."""
    name_suffix: str = ""
    """Suffix of the segments' names."""
    is_dry_run: bool = False
    """True: upload nothing."""


def build(task: BuildTask) -> BatchFunction:
    """Return a function from parcels, sorted by lot, to result rows: (segment, JSON) per segment; (counts, JSON) as
    they come."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = read_table(task.manifest_text)
        with tempfile.TemporaryDirectory(prefix="merlot-build-") as folder:
            builder = _TaskBuilder(table, task, Path(folder))
            new_lot = partial(Lot, table.spec, parcels.key_names(table), Path(folder))
            for content in parcels.opened(batches, parcels.rows_schema(table), new_lot):
                if isinstance(content, str):
                    yield _result("counts", content)
                    continue
                for rows in content.groups():
                    yield from builder.build(rows)
            yield from builder.upload()

    return run


def warm() -> None:
    """Build a tiny segment, so that processes which fork from this one have the builder's kernels compiled."""
    fields = [FieldSpec(name=str(name).lower(), type=name) for name in COLUMN_TYPES]
    schema = TableSchema(fields=tuple(fields))
    texts = pa.table({field.name: ["1", "0", None] for field in fields})
    rows = transform.conform(texts, TableSpec(table_schema=schema)).rows
    indexing = IndexingSpec(inverted=("int",), no_dictionary=("double",))
    request = BuildRequest(name="warm", table="warm", schema=schema, indexing=indexing)
    with tempfile.TemporaryDirectory(prefix="merlot-warm-") as folder:
        build_segment(request, rows, Path(folder))


class _TaskBuilder:
    """Builder and uploader of one task's segments."""

    def __init__(self, table: Table, task: BuildTask, folder: Path) -> None:
        self._table = table
        self._task = task
        self._folder = folder
        self._store = DeepStore(task.deep_store, keeps_copies=False)
        self._waiting: list[BuiltSegment] = []
        self._seconds: list[float] = []

    def build(self, rows: GroupRows) -> Iterator[pa.RecordBatch]:
        """Build a segment. If it is time to upload the waiting segments, do so and yield their results."""
        started = time.monotonic()
        group = grouping.group_of(rows.key, self._table.spec)
        creation = CreationFacts(host=socket.gethostname(), time_ms=time.time_ns() // 1_000_000, builder=BUILDER)
        request = request_of(self._table, group, creation, self._task.name_suffix, rows.part)
        with SegmentWriter(request, rows.num_rows, self._folder) as writer:
            for column in rows.columns():
                writer.add(column)
            self._waiting.append(writer.commit())
        self._seconds.append(time.monotonic() - started)
        if (
            len(self._waiting) >= MAX_WAITING
            or sum(segment.size_bytes for segment in self._waiting) >= MAX_WAITING_BYTES
        ):
            yield from self.upload()

    def upload(self) -> Iterator[pa.RecordBatch]:
        """Upload the waiting segments to the deep store; yield a result for each."""
        urls = [self._store.url_of(self._table.name, segment.metadata.key) for segment in self._waiting]
        absent = frozenset() if self._task.is_dry_run else frozenset(urls) - self._task.present
        self._store.put_all(
            [(segment.path, url) for segment, url in zip(self._waiting, urls, strict=True) if url in absent]
        )
        for built, url, seconds in zip(self._waiting, urls, self._seconds, strict=True):
            built.path.unlink()
            record = record_of(built.metadata, url, built.size_bytes, built.blooms)
            facts = {
                "record": record.model_dump(mode="json", by_alias=True, exclude_defaults=True),
                "uploaded": url in absent,
                "seconds": round(seconds, 4),
                "unpartitioned": dict(built.unpartitioned),
            }
            yield _result("segment", json.dumps(facts))
            if self._task.on_built is not None:
                self._task.on_built(1)
        self._waiting, self._seconds = [], []


def _result(kind: str, value: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([kind]), pa.array([value])], schema=RESULT_SCHEMA)
