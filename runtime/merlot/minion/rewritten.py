"""Build the file that replaces sealed segments of an upsert table, from some docs of each in their order."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.catalog.transfer import check_room, fetch_segments, upload_segments
from merlot.clock import Clock
from merlot.cluster.records import SegmentRecord
from merlot.ids import TableName
from merlot.minion.control import TaskControl
from merlot.segment.arrow_types import arrow_type
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.metadata import CreationFacts
from merlot.segment.reader import Segment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.upsert.keys import KeyColumns
from merlot.upsert.rewriting import kept_docs
from merlot.upsert.valid_docs import Longs

DISK_SHARE: Final = 2.0
"""Disk space that is needed, in sizes of the segments' files: for the fetched files and the new one."""
BUILDER: Final = "merlot_minion"


@dataclass(frozen=True, kw_only=True)
class FileMaker:
    """Builds and uploads files for one task, in the task's directory."""

    table: Table
    name: TableName
    store: DeepStore
    folder: Path
    control: TaskControl
    clock: Clock

    def kept(self, record: SegmentRecord, valid: Longs) -> Longs:
        """Return the docs to keep. If a key has several valid docs, all its docs stay: a new file could not tell them
        apart (`upsert.rewriting`)."""
        schema = self.table.spec.table_schema
        fields = [field for name in schema.primary_key if (field := schema.field(name)) is not None]
        every = np.arange(record.total_docs, dtype=np.uint32)
        [path] = self._fetched([record])
        with ImmutableSegment.open(path) as segment:
            columns = {field.name: taken_column(column_under(segment, field), every) for field in fields}
            return kept_docs(KeyColumns(fields).of(pa.table(columns)), valid)

    def make(self, records: Sequence[SegmentRecord], docs: Longs) -> SegmentRecord:
        """Build a file of some docs of the segments, and upload it under the last segment's name. `docs`: docs to keep,
        ascending, numbered through all segments."""
        paths = self._fetched(records)
        self.control.tell("BUILD", rows=len(docs))
        firsts = np.cumsum([0, *(record.total_docs for record in records)])
        ends = np.searchsorted(docs, firsts[1:-1])
        chosen = [some - first for some, first in zip(np.split(docs, ends), firsts, strict=False)]
        built = self._built(records[-1], paths, chosen)
        self.control.reached("segment built")
        self.control.check()
        self.control.tell("UPLOAD")
        [uploaded] = upload_segments(self.store, [built], self.name)
        self.control.reached("segment uploaded")
        return uploaded

    def _fetched(self, records: Sequence[SegmentRecord]) -> list[Path]:
        check_room(self.folder, round(DISK_SHARE * sum(record.size_bytes for record in records)))
        self.control.tell("FETCH")
        paths = fetch_segments(self.store, records, self.folder / "in")
        self.control.reached("segment fetched")
        return paths

    def _built(self, record: SegmentRecord, paths: Sequence[Path], docs: Sequence[Longs]) -> BuiltSegment:
        spec, folder = self.table.spec, self.folder / "out"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        facts = CreationFacts(host=socket.gethostname(), time_ms=self.clock.now_ms(), builder=BUILDER)
        request = BuildRequest(
            name=record.name,
            table=self.table.raw_name,
            schema=spec.table_schema,
            indexing=spec.indexing,
            time_column=spec.time_column,
            partitioning=spec.partitioning,
            creation=facts,
        )
        with ExitStack() as opened:
            segments = [opened.enter_context(ImmutableSegment.open(path)) for path in paths]
            parts = [self._rows(segment, some) for segment, some in zip(segments, docs, strict=True)]
            return build_segment(request, pa.concat_tables(parts), folder)

    def _rows(self, segment: Segment, docs: Longs) -> pa.Table:
        fields, chosen = self.table.spec.table_schema.fields, docs.astype(np.uint32)
        schema = pa.schema([pa.field(field.name, arrow_type(field)) for field in fields])
        columns = [taken_column(column_under(segment, field), chosen) for field in fields]
        return pa.table(columns, names=schema.names).cast(schema)
