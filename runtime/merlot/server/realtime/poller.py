"""Polls of one partition, decoded into columns; a batch is split where a segment ends."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import MerlotError
from merlot.ingest.bad_rows import BadRows
from merlot.ingest.stream import Pipeline, StreamRows, head, tail
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.realtime.attempts import DecodeAttempts
from merlot.server.realtime.memory_budget import MemoryBudget
from merlot.streams.protocol import Messages, NotYetError, PartitionReader

MAX_MESSAGES: Final = 20_000
"""Most messages of a poll: enough that a batch's fixed cost does not matter, few enough to be visible in
milliseconds."""
BEHIND_MESSAGES: Final = 5_000
"""Messages of a poll after which there are likely more: the next poll is read and decoded while these are appended."""
AHEAD: Final = 2
"""Polls that are decoded ahead at a time."""
AHEAD_BYTES: Final = 256 << 20
"""Default bound of the messages, in bytes, that all partitions of a server together have read ahead."""


class DecodeSlots:
    """Limit on the threads that decode at a time, whatever the number of partitions. The others wait for messages,
    which costs nothing, and queries of the server get the interpreter's lock now and then.

    Threads decode in the order in which they asked. Those of a semaphore would not: a partition with a backlog takes
    its slot again before a thread that waits wakes up, and the others wait for as long as the backlog lasts."""

    def __init__(self, num_threads: int, ahead_bytes: int = AHEAD_BYTES) -> None:
        self.ahead = MemoryBudget(ahead_bytes)
        """Budget of the messages that partitions have read ahead: with a backlog, most of them wait for a slot."""
        self._num_free = num_threads
        self._waiting: deque[threading.Event] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold a slot; wait for a free one first."""
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def _acquire(self) -> None:
        with self._lock:
            if self._num_free:
                self._num_free -= 1
                return
            mine = threading.Event()
            self._waiting.append(mine)
        mine.wait()

    def _release(self) -> None:
        """Pass the slot on to the thread that has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._num_free += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Rows of one poll, in order. The stream goes on at `next_offset`."""

    rows: pa.Table
    offsets: NDArray[np.int64]
    next_offset: int
    newest_ms: int = 0
    """Timestamp of its last message; -1 if the stream does not say, 0 if there is none."""

    def __len__(self) -> int:
        return len(self.offsets)

    def append_to(self, segment: ConsumingSegment, now_ms: int) -> None:
        """Append its rows to a segment; a batch without rows moves the segment's `next_offset` on."""
        newest_ms = now_ms if self.newest_ms < 0 else self.newest_ms
        if len(self):
            segment.append(self.rows, self.offsets, self.next_offset, newest_ms)
        elif self.next_offset > segment.next_offset:
            segment.append(segment.rows(0), self.offsets, self.next_offset, newest_ms)


@dataclass(slots=True)
class PollCounts:
    """Counts of messages and rows since the thread began. The thread writes them, any thread reads them."""

    messages: int = 0
    rows: int = 0
    bad: int = 0
    filtered: int = 0
    newest_ms: int = -1
    """Timestamp of the last message; -1: none, or the stream does not say."""
    bad_rows: BadRows = field(default_factory=BadRows)
    """Bad messages by their reasons, with samples."""


class Poller:
    """Reader of messages, with the pipelines that decode them; one thread calls.

    While a partition is behind, threads of its own decode the next polls as the caller appends: kernels release the
    interpreter's lock. Batches come in the order of the stream all the same."""

    def __init__(
        self,
        reader: PartitionReader,
        open_pipeline: Callable[[], Pipeline],
        turns: DecodeSlots,
        counts: PollCounts,
        attempts: DecodeAttempts | None = None,
    ) -> None:
        self._reader = reader
        self._attempts = attempts
        self._open_pipeline = open_pipeline
        self._turns = turns
        self._counts = counts
        self._pipelines = [open_pipeline()]
        """Pipelines that are free."""
        self._helpers: ThreadPoolExecutor | None = None
        self._ahead: deque[tuple[Messages, Future[StreamRows]]] = deque()
        self._failure: MerlotError | None = None
        """Error of the reader, to be raised after what was read before it."""
        self._held: Messages | None = None
        """Messages that are not decoded yet: they wait for a schema, or messages before them made many rows."""
        self._is_behind = False
        self.stopped_at: int | None = None
        """Offset of a bad message behind which nothing may be read."""

    def seek(self, offset: int) -> None:
        """Go on from this offset."""
        self._forget()
        self.stopped_at = None
        self._reader.seek(offset)

    def poll(self, timeout_s: float) -> RowBatch:
        """Return what has come, as soon as anything has. Raises as `PartitionReader.poll` does."""
        messages, rows = self._next(timeout_s)
        if rows is None:
            return _nothing(messages.next_offset)
        messages = self._taken(messages, rows)
        self._count(messages, rows)
        self.stopped_at = None if rows.stopped_by is None else rows.next_offset
        if self.stopped_at is not None:
            self._forget()
        return RowBatch(
            rows=rows.rows,
            offsets=rows.offsets,
            next_offset=rows.next_offset,
            newest_ms=int(messages.timestamps_ms[-1]),
        )

    def close(self) -> None:
        """Release what the reader holds."""
        self._forget()
        if self._helpers is not None:
            self._helpers.shutdown()
        self._reader.close()

    def _next(self, timeout_s: float) -> tuple[Messages, StreamRows | None]:
        """Return the next messages and their rows; None for rows if there are no messages, or they wait for a
        schema."""
        if self._held is not None:
            messages, self._held = self._held, None
        elif self._ahead:
            messages, decoding = self._ahead.popleft()
            self._tell_ahead()
            self._read_ahead()
            return self._made(messages, decoding.result, timeout_s)
        elif self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        else:
            messages = self._reader.poll(MAX_MESSAGES, timeout_s)
            if len(messages) >= BEHIND_MESSAGES:
                self._decode_ahead(messages)
                return self._next(timeout_s)
        if not len(messages):
            return messages, None
        return self._made(messages, partial(self._decode, messages), timeout_s)

    def _made(
        self, messages: Messages, rows: Callable[[], StreamRows], timeout_s: float
    ) -> tuple[Messages, StreamRows | None]:
        try:
            return messages, rows()
        except NotYetError:
            self._held = messages
            time.sleep(timeout_s)
            return replace(messages, next_offset=int(messages.offsets[0])), None

    def _taken(self, messages: Messages, rows: StreamRows) -> Messages:
        """Return the messages that rows were made of. The rest is held, to be decoded next."""
        if rows.stopped_by is not None or rows.next_offset >= messages.next_offset:
            return messages
        count = int(np.searchsorted(messages.offsets, rows.next_offset))
        if count < len(messages):
            self._held = tail(messages, count)
        return head(messages, count)

    def _read_ahead(self) -> None:
        """Read ahead and decode what the stream already has, as long as it is a lot, and the server's partitions
        together have not read too much ahead."""
        while self._may_read_ahead():
            try:
                messages = self._reader.poll(MAX_MESSAGES, 0)
            except MerlotError as error:
                self._failure = error
                return
            self._is_behind = len(messages) >= BEHIND_MESSAGES
            if len(messages):
                self._decode_ahead(messages)

    def _may_read_ahead(self) -> bool:
        is_wanted = len(self._ahead) < AHEAD and self._failure is None and self._is_behind
        return is_wanted and not self._turns.ahead.is_full

    def _tell_ahead(self) -> None:
        self._turns.ahead.tell(self, sum(messages.values.nbytes for messages, _ in self._ahead), 0)

    def _decode_ahead(self, messages: Messages) -> None:
        if self._helpers is None:
            self._helpers = ThreadPoolExecutor(AHEAD, thread_name_prefix="decode")
        self._is_behind = len(messages) >= BEHIND_MESSAGES
        self._ahead.append((messages, self._helpers.submit(self._decode, messages)))
        self._tell_ahead()

    def _decode(self, messages: Messages) -> StreamRows:
        """Decode messages; any thread, each with a pipeline of its own."""
        with self._turns.turn():
            try:
                pipeline = self._pipelines.pop()
            except IndexError:
                pipeline = self._open_pipeline()
            try:
                if self._attempts is None:
                    return pipeline.rows(messages)
                return self._attempts.decode(messages, pipeline.rows)
            finally:
                self._pipelines.append(pipeline)

    def _forget(self) -> None:
        """Forget what was read ahead: it is read again, or not wanted."""
        for _, decoding in self._ahead:
            if not decoding.cancel():
                decoding.exception()
        self._ahead.clear()
        self._tell_ahead()
        self._held = self._failure = None

    def _count(self, messages: Messages, rows: StreamRows) -> None:
        counts = self._counts
        counts.messages += len(messages)
        counts.rows += len(rows.offsets)
        counts.bad += rows.bad.count
        counts.filtered += rows.num_filtered
        if rows.bad.count:
            counts.bad_rows = (counts.bad_rows + rows.bad).bounded()
        counts.newest_ms = int(messages.timestamps_ms[-1])


def _nothing(next_offset: int) -> RowBatch:
    none = np.empty(0, np.int64)
    return RowBatch(rows=pa.table({}), offsets=none, next_offset=next_offset)
