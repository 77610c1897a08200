"""Polls of a stream become batches of rows, in order, each once, though the next one is read meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from merlot.errors import UnavailableError
from merlot.ingest.bad_rows import BadRow, BadRows
from merlot.ingest.stream import Pipeline, StreamRows, head
from merlot.server.realtime import poller
from merlot.server.realtime.poller import DecodeSlots, PollCounts, Poller, RowBatch
from merlot.streams.protocol import Messages, NotYetError
from merlot.testing.patience import PATIENCE_S

BEHIND = poller.BEHIND_MESSAGES


@dataclass
class Reader:
    """Messages whose values are their offsets, as many at a time as it is told."""

    sizes: list[int]
    next: int = 0
    threads: set[int] = field(default_factory=set)
    failures: dict[int, Exception] = field(default_factory=dict)
    """What a poll raises instead, by the offset that it would begin at."""
    is_closed: bool = False
    is_busy: bool = False

    def poll(self, max_messages: int, timeout_s: float) -> Messages:
        assert not self.is_busy, "one thread at a time"
        assert not self.is_closed
        self.is_busy = True
        try:
            self.threads.add(threading.get_ident())
            if self.next in self.failures:
                raise self.failures[self.next]
            size = self.sizes.pop(0) if self.sizes else 0
            offsets = np.arange(self.next, self.next + size)
            self.next += size
            values = pa.array([b"%d" % offset for offset in offsets.tolist()], pa.large_binary())
            return Messages(values=values, offsets=offsets, timestamps_ms=offsets, next_offset=self.next)
        finally:
            self.is_busy = False

    def seek(self, offset: int) -> None:
        assert not self.is_busy
        self.next = offset

    def close(self) -> None:
        assert not self.is_busy
        self.is_closed = True


@dataclass
class Decoding:
    """A pipeline of one column."""

    before: Callable[[Messages], None] = lambda _: None
    threads: set[int] = field(default_factory=set)

    def rows(self, messages: Messages) -> StreamRows:
        self.threads.add(threading.get_ident())
        self.before(messages)
        rows = pa.table({"a": messages.offsets})
        return StreamRows(rows=rows, offsets=messages.offsets, next_offset=messages.next_offset)


def poller_of(reader: Reader, decoding: Decoding | None = None, slots: DecodeSlots | None = None) -> Poller:
    return Poller(reader, lambda: cast(Pipeline, decoding or Decoding()), slots or DecodeSlots(2), PollCounts())


def taken(batches: list[RowBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.offsets.tolist()]


def test_what_is_read_ahead_comes_once_and_in_order() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)

    def meet(messages: Messages) -> None:
        if len(messages) == BEHIND and messages.offsets[0] < 2 * BEHIND:
            both.wait()

    reader, decoding = Reader([BEHIND, BEHIND, BEHIND, 3, 0, 2]), Decoding(meet)
    polled = poller_of(reader, decoding)
    batches = [polled.poll(0.01) for _ in range(7)]
    assert taken(batches) == list(range(3 * BEHIND + 5))
    assert [len(batch) for batch in batches] == [BEHIND, BEHIND, BEHIND, 3, 0, 2, 0]
    assert batches[-1].next_offset == 3 * BEHIND + 5
    assert reader.threads == {threading.get_ident()}, "a reader is one thread's"
    assert len(decoding.threads) > 1
    polled.close()
    assert reader.is_closed


def test_partitions_read_ahead_only_as_much_as_the_server_has_room_for() -> None:
    slots = DecodeSlots(2, ahead_bytes=1)
    readers = [Reader([BEHIND] * 4) for _ in range(2)]
    first, second = (poller_of(reader, slots=slots) for reader in readers)
    batches = [first.poll(0.01)]
    assert (readers[0].next, slots.ahead.is_full) == (2 * BEHIND, True)
    others = [second.poll(0.01)]
    assert readers[1].next == BEHIND, "the other one has read ahead already"
    first.close()
    assert slots.ahead.taken_bytes == 0
    others += [second.poll(0.01) for _ in range(3)]
    assert taken(others) == list(range(4 * BEHIND))
    assert taken(batches) == list(range(BEHIND))
    second.close()


def test_who_has_caught_up_decodes_on_the_thread_that_asks() -> None:
    reader, decoding = Reader([10, 10, BEHIND - 1, 10]), Decoding()
    polled = poller_of(reader, decoding)
    assert taken([polled.poll(0.01) for _ in range(4)]) == list(range(BEHIND + 29))
    assert decoding.threads == {threading.get_ident()}
    polled.close()


def test_failure_of_what_is_read_ahead_comes_after_the_rows_before_it() -> None:
    reader = Reader([BEHIND, 7], failures={BEHIND: UnavailableError("in a test")})
    polled = poller_of(reader)
    assert taken([polled.poll(0.01)]) == list(range(BEHIND))
    with pytest.raises(UnavailableError, match="in a test"):
        polled.poll(0.01)
    reader.failures.clear()
    assert taken([polled.poll(0.01)]) == list(range(BEHIND, BEHIND + 7))
    polled.close()


def test_seek_forgets_what_was_read_ahead() -> None:
    reader = Reader([BEHIND, BEHIND, BEHIND, 4])
    polled = poller_of(reader)
    polled.poll(0.01)
    polled.seek(100)
    assert taken([polled.poll(0.01)]) == list(range(100, 104))
    polled.close()


def test_nothing_comes_behind_a_message_that_stops() -> None:
    class Stopping(Decoding):
        def rows(self, messages: Messages) -> StreamRows:
            found = super().rows(messages)
            culprit = BadRow("in a test", (), file="t#0", row_number=5)
            return found if messages.offsets[0] else replace(found, next_offset=5, stopped_by=culprit)

    polled = poller_of(Reader([BEHIND, BEHIND, BEHIND, 4]), Stopping())
    polled.poll(0.01)
    assert polled.stopped_at == 5
    polled.seek(5)
    assert polled.stopped_at is None
    assert taken([polled.poll(0.01)]) == list(range(5, 9))
    polled.close()


@pytest.mark.parametrize("size", [5, BEHIND])
def test_messages_that_wait_for_a_schema_are_kept(size: int) -> None:
    waits = [2]

    def not_yet(messages: Messages) -> None:
        if messages.offsets[0] == size and waits[0]:
            waits[0] -= 1
            raise NotYetError("in a test")

    reader = Reader([size, size, 1])
    polled = poller_of(reader, Decoding(not_yet))
    batches = [polled.poll(0.01) for _ in range(6)]
    assert taken(batches) == list(range(2 * size + 1))
    assert [len(batch) for batch in batches] == [size, 0, 0, size, 1, 0]
    assert [batch.next_offset for batch in batches] == [size, size, size, 2 * size, 2 * size + 1, 2 * size + 1]
    polled.close()


def test_bad_messages_are_counted_by_reason_over_all_polls() -> None:
    class Picky(Decoding):
        def rows(self, messages: Messages) -> StreamRows:
            bad = BadRows()
            for offset in messages.offsets.tolist():
                reason = f"n: not a value of {('INT', 'LONG', 'DOUBLE')[offset % 3]}"
                bad += BadRows({reason: 1}, (BadRow(reason, (("n", "x"),), "t#0", offset, "n", "x"),))
            return replace(super().rows(messages), bad=bad)

    counts = PollCounts()
    reader = Reader([1, 2, 3, 1])
    filled = Poller(reader, lambda: cast(Pipeline, Picky()), DecodeSlots(2), counts)
    while reader.sizes:
        filled.poll(0.01)
    assert (counts.bad, counts.bad_rows.count) == (7, 7)
    assert counts.bad_rows.by_reason == {
        "n: not a value of DOUBLE": 2, "n: not a value of INT": 3, "n: not a value of LONG": 2,
    }  # fmt: skip
    assert counts.bad_rows.to_status() == (
        "7 bad rows left out:",
        "  3 × n: not a value of INT",
        "      t#0 row 0: n = 'x'",
        "  2 × n: not a value of DOUBLE",
        "      t#0 row 2: n = 'x'",
        "  2 × n: not a value of LONG",
        "      t#0 row 1: n = 'x'",
    )


def test_seek_forgets_what_waits() -> None:
    def never(messages: Messages) -> None:
        if messages.offsets[0] == 0:
            raise NotYetError("in a test")

    polled = poller_of(Reader([5, 5]), Decoding(never))
    assert len(polled.poll(0.01)) == 0
    polled.seek(5)
    assert taken([polled.poll(0.01)]) == list(range(5, 10))
    polled.close()


@dataclass
class Little:
    """A pipeline that makes rows of at most so many messages at a time."""

    most: int

    def rows(self, messages: Messages) -> StreamRows:
        taken_now = head(messages, self.most) if len(messages) > self.most else messages
        rows = pa.table({"a": taken_now.offsets})
        return StreamRows(rows=rows, offsets=taken_now.offsets, next_offset=taken_now.next_offset)


@pytest.mark.parametrize("sizes", [[7, 3], [BEHIND, BEHIND, 5]])
def test_messages_that_were_too_many_at_once_come_next_and_in_order(sizes: list[int]) -> None:
    total = sum(sizes)
    counts = PollCounts()
    polled = Poller(
        Reader(list(sizes)), lambda: cast(Pipeline, Little(2_000 if total > 100 else 4)), DecodeSlots(2), counts
    )
    batches = []
    while not batches or batches[-1].next_offset < total:
        batches.append(polled.poll(0.01))
        assert batches[-1].next_offset == int(batches[-1].offsets[-1]) + 1
        assert len(batches) < 50
    assert taken(batches) == list(range(total))
    assert (counts.messages, counts.rows) == (total, total)
    polled.close()


def test_backlog_of_one_partition_does_not_keep_others_from_decoding() -> None:
    slots = DecodeSlots(1)

    def decode_once() -> None:
        with slots.turn():
            pass

    other = threading.Thread(target=decode_once)
    with slots.turn():
        other.start()
        time.sleep(0.05)
    deadline = time.monotonic() + PATIENCE_S
    while other.is_alive() and time.monotonic() < deadline:
        with slots.turn():
            time.sleep(0.001)
    assert not other.is_alive()
