"""Replicas of a partition of an upsert table whose rows are not stored as they came: merged, or only the first ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from merlot.clock import SystemClock
from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.consuming.steps import Switch
from merlot.cluster.records import ConsumingStatus, StreamSegmentRecord
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import Segment, SomeDocs
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.server.realtime.indexed import IndexDeps
from merlot.server.realtime.memory_budget import MemoryBudget
from merlot.server.realtime.open_segments import OpenSegments
from merlot.server.realtime.partition_deps import PartitionDeps, SegmentSettings
from merlot.server.realtime.poller import RowBatch
from merlot.server.realtime.upserts import UpsertListener
from merlot.spec.schema import TableSchema
from merlot.upsert.rules import Rules

Row = dict[str, Any]


def segments_of(listener: UpsertListener, loaded: Collection[str]) -> OpenSegments:
    """Return the open segments of a partition whose server has loaded these files, reports at once, and has memory
    enough."""
    deps = SimpleNamespace(
        clock=SystemClock(),
        memory=MemoryBudget(1 << 40),
        is_loaded=loaded.__contains__,
        is_to_hold=lambda _: True,
        is_elsewhere=lambda _: False,
        reported_as_of=lambda: math.inf,
        on_change=lambda: None,
        grace_s=0.0,
    )
    return OpenSegments(cast(PartitionDeps, deps), listener)


class Stream:
    """Messages, and the segments that all replicas agree on: sealed by whoever gets there first."""

    def __init__(self, schema: TableSchema, upsert: str, folder: Path) -> None:
        self.schema, self.upsert, self.folder = schema, upsert, folder
        self.messages: list[Row] = []
        self.records = {0: self._opened(0, 0)}
        self.sealed: dict[str, Segment] = {}
        self.request = BuildRequest(name="", table="t", schema=schema)

    @property
    def open(self) -> StreamSegmentRecord:
        return self.records[max(self.records)]

    def table(self, start: int, stop: int) -> pa.Table:
        return pa.Table.from_pylist(self.messages[start:stop], arrow_schema(self.schema))

    def commit(self, end: int, sealed: ImmutableSegment) -> None:
        record = self.open
        done = record.model_copy(
            update={
                "status": ConsumingStatus.DONE.value,
                "end_offset": end,
                "total_docs": sealed.num_docs,
                "crc": sealed.key.crc,
            }
        )
        following = self._opened(record.sequence + 1, end)
        self.records = {**self.records, record.sequence: done, record.sequence + 1: following}
        self.sealed[done.key_text] = sealed

    def _opened(self, sequence: int, start: int) -> StreamSegmentRecord:
        return StreamSegmentRecord(
            name=f"t__0__{sequence}__20260101T0000Z",
            crc=0,
            size_bytes=0,
            url="",
            total_docs=0,
            creation_time_ms=0,
            partition=0,
            sequence=sequence,
            start_offset=start,
            upsert=self.upsert,
            status=ConsumingStatus.CONSUMING.value,
        )


class Replica:
    """One server's rows and index."""

    def __init__(self, stream: Stream, number: int) -> None:
        self.stream, self.number = stream, number
        self.settings = cast(SegmentSettings, SimpleNamespace(request=stream.request))
        self.restart()

    def restart(self) -> None:
        self.loaded = set(self.stream.sealed)
        deps = IndexDeps(
            where="in a test",
            rules_of=lambda record: Rules.of(unpin_upsert(record.upsert), self.stream.schema, "at"),
            scan_s_of=lambda _: 0.0,
            misplaced=lambda _: 0,
            clock=SystemClock(),
            borrow=self._borrow,
            on_change=lambda: None,
        )
        self.listener = UpsertListener(deps, lambda: self.stream.records)
        self.segments = segments_of(self.listener, self.loaded)
        assert self.listener.may_begin()
        self.segments.begin(self.stream.open, self.settings)

    @contextmanager
    def _borrow(self, key: str) -> Iterator[Segment | None]:
        yield self.stream.sealed[key] if key in self.loaded else None

    @property
    def offset(self) -> int:
        found = self.segments.next_offset
        assert found is not None
        return found

    def read(self, stop: int, size: int = 1 << 30) -> None:
        while (start := self.offset) < stop:
            end = min(stop, start + size)
            rows = self.stream.table(start, end)
            self.segments.append(RowBatch(rows=rows, offsets=np.arange(start, end), next_offset=end), 0)
        self.listener.settle()

    def seal(self, end: int) -> ImmutableSegment:
        """The file that it makes of its rows up to there."""
        rows = self.segments.worked.rows
        assert rows is not None
        folder = self.stream.folder / f"{self.number}-{self.stream.open.sequence}"
        folder.mkdir(exist_ok=True)
        return ImmutableSegment.open(rows.seal(folder, rows.docs_before(end)).path)

    def follow(self, old: StreamSegmentRecord, *, carries: bool) -> None:
        """Take up a commit, as the state machine would have it done."""
        assert old.end_offset is not None
        self.loaded.add(old.key_text)
        has_all = self.offset >= old.end_offset
        if has_all:
            self.segments.end(old.end_offset, takes_tail=carries)
        following = self.stream.records[old.sequence + 1]
        self.segments.switch(Switch(record=following, keep=False, carry=has_all and carries), old, self.settings)

    def rows(self, *, is_valid: bool) -> list[Row]:
        """All that is stored, in the order of the stream, or of that what queries see."""
        view = self.listener.view
        assert view is not None
        sources = {part.sequence: part.snapshot() for part in view.log.parts if part.rows is not None}
        found: list[Row] = []
        for sequence, record in sorted(self.stream.records.items()):
            segment = sources.get(sequence) or self.stream.sealed.get(record.key_text)
            if segment is None:
                continue
            docs = np.arange(segment.num_docs, dtype=np.uint32)
            if is_valid:
                masked = view.masked(sequence, segment)
                assert masked is not None
                assert isinstance(masked.valid_docs, SomeDocs)
                bits = np.unpackbits(masked.valid_docs.words.view(np.uint8), bitorder="little")
                docs = np.flatnonzero(bits).astype(np.uint32)
            columns = {
                field.name: taken_column(column_under(segment, field), docs).to_pylist()
                for field in self.stream.schema.fields
            }
            found += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return found


def interleave(
    stream: Stream, draw: random.Random, produce: Callable[[random.Random, int], Row], check: Callable[[Replica], None]
) -> None:
    """Three replicas read in batches of their own, end segments with and without tails, load each other's files, let
    go of rows, and begin anew; each step is checked, and files that several of them make are the same."""
    replicas = [Replica(stream, number) for number in range(3)]
    for _ in range(30):
        replica = draw.choice(replicas)
        stream.messages += [produce(draw, len(stream.messages)) for _ in range(draw.randrange(12))]
        step = draw.choice(("read", "read", "read", "commit", "release", "restart"))
        match step:
            case "read" if replica.offset < len(stream.messages):
                replica.read(draw.randrange(replica.offset, len(stream.messages)) + 1, draw.choice((1, 3, 100)))
            case "commit" if replica.offset > stream.open.start_offset:
                _commit(stream, replicas, draw.randrange(stream.open.start_offset, replica.offset) + 1, draw)
            case "release":
                replica.segments.release()
            case "restart":
                replica.restart()
        for one in replicas if step == "commit" else (replica,):
            check(one)


def _commit(stream: Stream, replicas: list[Replica], end: int, draw: random.Random) -> None:
    old = stream.open
    able = [one for one in replicas if one.offset >= end]
    files = [one.seal(end) for one in able]
    assert len({file.key.crc for file in files}) == 1, "replicas made different files"
    stream.commit(end, draw.choice(files))
    for one in replicas:
        one.follow(stream.records[old.sequence], carries=draw.random() < 0.7)
