"""Rows of one partition as they come: polls of the stream made into columns, to be cut where a segment ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.ingest.stream import Pipeline, StreamRows
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.streams.protocol import Messages, NotYetError, PartitionReader

MAX_MESSAGES: Final = 20_000
"""Of a poll: enough that what a batch costs is not felt, few enough to be visible in milliseconds."""
BEHIND_MESSAGES: Final = 5_000
"""After a poll of as many, there are likely more: what comes next is read while these are appended."""


class Turns:
    """How many threads work on rows at a time, whatever the number of partitions: the others wait for messages, which
    costs nothing, and the queries of the server get the interpreter's lock now and then."""

    def __init__(self, num_threads: int) -> None:
        self._free = threading.Semaphore(num_threads)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and have it."""
        self._free.acquire()
        try:
            yield
        finally:
            self._free.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows of one poll, in order. `next_offset` is where the stream goes on behind them."""

    rows: pa.Table
    offsets: NDArray[np.int64]
    message_offsets: NDArray[np.int64]
    next_offset: int
    newest_ms: int = 0
    """When its last message was made; -1: the stream does not say; 0: it has none."""

    def __len__(self) -> int:
        return len(self.offsets)

    def append_to(self, segment: ConsumingSegment, now_ms: int) -> None:
        """Add its rows to a segment, or say that there is nothing up to where the stream goes on."""
        newest_ms = now_ms if self.newest_ms < 0 else self.newest_ms
        if len(self):
            segment.append(self.rows, self.offsets, self.next_offset, newest_ms)
        elif self.next_offset > segment.next_offset:
            segment.append(segment.rows(0), self.offsets, self.next_offset, newest_ms)


@dataclass(slots=True)
class Counts:
    """What came in since the thread began; written by it, read by anybody."""

    messages: int = 0
    rows: int = 0
    bad: int = 0
    filtered: int = 0
    newest_ms: int = -1
    """Timestamp of the last message; -1: none, or the stream does not say."""
    samples: tuple[str, ...] = ()
    """Of bad messages, the last ones."""


class Intake:
    """A reader with the pipeline that its messages go through; one thread calls.

    While a partition is behind, another thread reads and decodes what comes next, as the caller appends: the kernels of
    both leave the interpreter to others."""

    def __init__(self, reader: PartitionReader, pipeline: Pipeline, turns: Turns, counts: Counts) -> None:
        self._reader = reader
        self._pipeline = pipeline
        self._turns = turns
        self._counts = counts
        self._held: Messages | None = None
        """Read, and not decoded yet: a schema is waited for."""
        self._helper: ThreadPoolExecutor | None = None
        self._ahead: Future[_Read] | None = None
        self.stopped_at: int | None = None
        """Offset of a bad message that nothing may be read behind."""

    def seek(self, offset: int) -> None:
        """Go on from there."""
        self._drop_ahead()
        self.stopped_at = None
        self._reader.seek(offset)

    def poll(self, timeout_s: float) -> Batch:
        """What has come, as soon as anything has; raises as `PartitionReader.poll` does."""
        ahead, self._ahead = self._ahead, None
        read = self._read(timeout_s) if ahead is None else ahead.result()
        if read.rows is None:
            return _nothing(read.messages.next_offset)
        self._count(read.messages, read.rows)
        self.stopped_at = None if read.rows.stopped_by is None else read.rows.next_offset
        if len(read.messages) >= BEHIND_MESSAGES and self.stopped_at is None:
            self._read_ahead(timeout_s)
        return Batch(
            rows=read.rows.rows,
            offsets=read.rows.offsets,
            message_offsets=read.messages.offsets,
            next_offset=read.rows.next_offset,
            newest_ms=int(read.messages.timestamps_ms[-1]),
        )

    def close(self) -> None:
        """Give back what the reader holds."""
        self._drop_ahead()
        if self._helper is not None:
            self._helper.shutdown()
        self._reader.close()

    def _read(self, timeout_s: float) -> _Read:
        """One poll's messages and their rows; none of either while a schema is waited for. Any one thread."""
        messages = self._held or self._reader.poll(MAX_MESSAGES, timeout_s)
        self._held = None
        if not len(messages):
            return _Read(messages, None)
        try:
            with self._turns.turn():
                return _Read(messages, self._pipeline.rows(messages))
        except NotYetError:
            self._held = messages
            time.sleep(timeout_s)
            return _Read(replace(messages, next_offset=int(messages.offsets[0])), None)

    def _read_ahead(self, timeout_s: float) -> None:
        if self._helper is None:
            self._helper = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._ahead = self._helper.submit(self._read, timeout_s)

    def _drop_ahead(self) -> None:
        """Whatever was read ahead is read again, or is not wanted."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.exception()
        self._held = None

    def _count(self, messages: Messages, rows: StreamRows) -> None:
        counts = self._counts
        counts.messages += len(messages)
        counts.rows += len(rows.offsets)
        counts.bad += rows.bad.count
        counts.filtered += rows.num_filtered
        if rows.bad.count:
            counts.samples = tuple(rows.bad.to_lines()[:3])
        counts.newest_ms = int(messages.timestamps_ms[-1])


@dataclass(frozen=True, slots=True)
class _Read:
    """Messages of a poll, and what became of them; nothing, if there are none or they wait."""

    messages: Messages
    rows: StreamRows | None


def _nothing(next_offset: int) -> Batch:
    none = np.empty(0, np.int64)
    return Batch(rows=pa.table({}), offsets=none, message_offsets=none, next_offset=next_offset)
