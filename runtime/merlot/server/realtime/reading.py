"""Read a partition of a stream by the settings of the segment that is consumed. Belongs to one thread.

After an error the partition is read again from behind the appended rows, after growing pauses.
"""

from __future__ import annotations

import logging
from typing import Final

from merlot import telemetry
from merlot.cluster.consuming.steps import MessageLost
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import MerlotError, UnavailableError
from merlot.server.realtime.partition_deps import PartitionDeps, SegmentSettings
from merlot.server.realtime.poller import PollCounts, Poller, RowBatch
from merlot.streams.protocol import OffsetOutOfRangeError

_LOG = logging.getLogger(__name__)

POLL_S: Final = 0.1
"""Longest wait for messages; all else that the thread has to do waits as long."""
LONGEST_ABSENCE_S: Final = 4.0
"""Longest pause for a stream that does not answer: when it is back, rows shall be seen soon."""


class StreamReading:
    """Reader of a partition's messages as batches of rows."""

    def __init__(self, partition: int, deps: PartitionDeps) -> None:
        self.counts = PollCounts()
        self.error: Exception | None = None
        """Error because of which nothing is read at the moment."""
        self.is_ready = False
        """True if its rows can be queried."""
        self._where = f"table={deps.table} partition={partition}"
        self._deps = deps
        self._settings: SegmentSettings | None = None
        self._made_of: tuple[str, int] | None = None
        self._poller: Poller | None = None
        self._target: int | None = None
        self._began = 0.0
        self._not_before = 0.0
        self._num_failures = 0
        self._lost_at: int | None = None

    @property
    def settings(self) -> SegmentSettings:
        """Settings by which the next messages are read."""
        assert self._settings is not None
        return self._settings

    @property
    def stopped_at(self) -> int | None:
        """Offset of a bad message behind which nothing may be read."""
        return None if self._poller is None else self._poller.stopped_at

    def use(self, record: StreamSegmentRecord) -> SegmentSettings:
        """Read by the segment's settings from now on, and return them. Raises MerlotError if they cannot be
        read."""
        made_of = record.pinned_id, self._deps.revision()
        before, was_made_of = self._settings, self._made_of
        is_same = before is not None and was_made_of is not None and was_made_of[0] == record.pinned_id
        if before is not None and (made_of == was_made_of or (is_same and not record.pinned)):
            return before  # a sealed segment's record does not say any more what was pinned
        settings = self._deps.settings_of(record)
        if before is None or not is_same or before.access != settings.access:
            self.close()
        self._settings, self._made_of = settings, made_of
        return settings

    def seek(self, offset: int) -> None:
        """Go on from this offset, at once."""
        self._not_before = 0.0
        if self._poller is not None:
            self._poller.seek(offset)

    def may_try(self) -> bool:
        """Return True if it is time to read; after an error there is a pause."""
        is_stopped = self.stopped_at is not None
        return not is_stopped and not self._deps.memory.is_full and self._deps.clock.monotonic() >= self._not_before

    def poll(self, segment: str, offset: int, timeout_s: float) -> RowBatch | MessageLost | None:
        """Return the rows from the offset on; MessageLost if the stream does not have that offset any more; None if it
        cannot be read. The cause is in `error` then."""
        try:
            batch = self._opened(offset).poll(timeout_s)
        except OffsetOutOfRangeError as error:
            return self._lost(segment, error)
        except MerlotError as error:
            self.fail(error)
            return None
        return batch

    def took(self) -> None:
        """Note that what was read has become rows."""
        self._num_failures, self._lost_at, self.error = 0, None, None

    def note(self, offset: int, *, is_alone: bool) -> None:
        """Note how far the rows go. `is_alone`: no other server can be queried for them."""
        if not self.is_ready and self._target is not None:
            has_tried = self._deps.clock.monotonic() - self._began >= self._deps.tuning.catch_up_s
            self.is_ready = offset >= self._target or (is_alone and has_tried)

    def fail(self, error: Exception) -> None:
        """Note an error: read again from behind the appended rows, after a pause."""
        self.close()
        if not self._num_failures:
            _LOG.warning("partition not consumed %s cause=%s", self._where, error)
        telemetry.STREAM_FAILURES.labels(self._deps.table, type(error).__name__).inc()
        self.error = error
        wait_s = self._deps.tuning.wait_s(self._num_failures)
        self._rest(min(LONGEST_ABSENCE_S, wait_s) if isinstance(error, UnavailableError) else wait_s)
        self._num_failures += 1

    def close(self) -> None:
        """Release what the reader holds."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.close()

    def _opened(self, offset: int) -> Poller:
        if self._target is None:
            self._target = self.settings.latest().latest
            self._began = self._deps.clock.monotonic()
        if self._poller is None:
            self._poller = self.settings.open_poller(offset, self.counts)
        return self._poller

    def _lost(self, segment: str, error: OffsetOutOfRangeError) -> MessageLost:
        onward = self.settings.after_gap(error.wanted, error.available)
        if onward is None:
            self.fail(error)
            return MessageLost(segment, None)
        if self._lost_at != error.wanted:
            self._lost_at = error.wanted
            text = "messages are lost, consumption goes on behind them %s from=%d to=%d"
            _LOG.error(text, self._where, error.wanted, onward)
            telemetry.STREAM_GAPS.labels(self._deps.table).inc()
        self.close()
        self._rest(self._deps.tuning.retry_s)
        return MessageLost(segment, onward)

    def _rest(self, seconds: float) -> None:
        self._not_before = self._deps.clock.monotonic() + seconds
