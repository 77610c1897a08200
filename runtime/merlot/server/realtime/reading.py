"""Reads a partition of a stream by the settings of the segment that is consumed. One thread's.

What goes wrong is tried again after growing pauses, from behind the rows that are appended.
"""

from __future__ import annotations

import logging
from typing import Final

from merlot import telemetry
from merlot.cluster.consuming.steps import Lost
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import MerlotError, UnavailableError
from merlot.server.realtime.around import Around, Settings
from merlot.server.realtime.intake import Batch, Counts, Intake
from merlot.streams.protocol import OffsetOutOfRangeError

_LOG = logging.getLogger(__name__)

POLL_S: Final = 0.1
"""Longest wait for messages: what else there is to do waits so long."""
RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 30.0
LONGEST_ABSENCE_S: Final = 4.0
"""For a stream that does not answer: when it is back, rows shall be seen soon."""
CATCH_UP_S: Final = 10.0
"""A replica that begins is asked once it has what the stream had then; or so long after, if there is no other one to
ask: what is behind by hours is answered as far as it is."""


class Reading:
    """A partition's messages as batches of rows."""

    def __init__(self, partition: int, around: Around) -> None:
        self.counts = Counts()
        self.error: Exception | None = None
        """Why nothing is read at the moment."""
        self.is_ready = False
        """Whether its rows may be asked for."""
        self._where = f"table={around.table} partition={partition}"
        self._around = around
        self._settings: Settings | None = None
        self._made_of: tuple[str, int] | None = None
        self._intake: Intake | None = None
        self._target: int | None = None
        self._began = 0.0
        self._not_before = 0.0
        self._num_failures = 0
        self._lost_at: int | None = None

    @property
    def settings(self) -> Settings:
        """By which the next messages are read."""
        assert self._settings is not None
        return self._settings

    @property
    def stopped_at(self) -> int | None:
        """Offset of a bad message that nothing may be read behind."""
        return None if self._intake is None else self._intake.stopped_at

    def use(self, record: StreamSegmentRecord) -> Settings:
        """Read by the segment's settings from now on. Raises MerlotError if they cannot be made out."""
        made_of = record.pinned_id, self._around.revision()
        before, was_made_of = self._settings, self._made_of
        is_same = before is not None and was_made_of is not None and was_made_of[0] == record.pinned_id
        if before is not None and (made_of == was_made_of or (is_same and not record.pinned)):
            return before  # a sealed segment's record does not say any more what was pinned
        settings = self._around.settings_of(record)
        if before is None or not is_same or before.access != settings.access:
            self.close()
        self._settings, self._made_of = settings, made_of
        return settings

    def seek(self, offset: int) -> None:
        """Go on from there, at once."""
        self._not_before = 0.0
        if self._intake is not None:
            self._intake.seek(offset)

    def may_try(self) -> bool:
        """Whether it is time to read; what has failed rests for a while."""
        is_stopped = self.stopped_at is not None
        return not is_stopped and not self._around.room.is_full and self._around.clock.monotonic() >= self._not_before

    def poll(self, segment: str, offset: int, timeout_s: float) -> Batch | Lost | None:
        """What has come behind the offset; Lost if the stream does not have that any more; None if it cannot be read.
        The cause is in `error` then."""
        try:
            batch = self._opened(offset).poll(timeout_s)
        except OffsetOutOfRangeError as error:
            return self._lost(segment, error)
        except MerlotError as error:
            self.fail(error)
            return None
        return batch

    def took(self) -> None:
        """What was read has become rows."""
        self._num_failures, self._lost_at, self.error = 0, None, None

    def note(self, offset: int, *, is_alone: bool) -> None:
        """Take note of how far the rows go. `is_alone`: no other server may be asked for them."""
        if not self.is_ready and self._target is not None:
            has_tried = self._around.clock.monotonic() - self._began >= CATCH_UP_S
            self.is_ready = offset >= self._target or (is_alone and has_tried)

    def fail(self, error: Exception) -> None:
        """Begin anew behind what is appended, after a while."""
        self.close()
        if not self._num_failures:
            _LOG.warning("partition not consumed %s cause=%s", self._where, error)
        telemetry.STREAM_FAILURES.labels(self._around.table, type(error).__name__).inc()
        self.error = error
        longest_s = LONGEST_ABSENCE_S if isinstance(error, UnavailableError) else LONGEST_RETRY_S
        self._rest(min(longest_s, RETRY_S * 2 ** min(self._num_failures, 10)))
        self._num_failures += 1

    def close(self) -> None:
        """Give back what the reader holds."""
        intake, self._intake = self._intake, None
        if intake is not None:
            intake.close()

    def _opened(self, offset: int) -> Intake:
        if self._target is None:
            self._target = self.settings.latest().latest
            self._began = self._around.clock.monotonic()
        if self._intake is None:
            self._intake = self.settings.open_intake(offset, self.counts)
        return self._intake

    def _lost(self, segment: str, error: OffsetOutOfRangeError) -> Lost:
        onward = self.settings.after_gap(error.wanted, error.available)
        if onward is None:
            self.fail(error)
            return Lost(segment, None)
        if self._lost_at != error.wanted:
            self._lost_at = error.wanted
            text = "messages are lost, consumption goes on behind them %s from=%d to=%d"
            _LOG.error(text, self._where, error.wanted, onward)
            telemetry.STREAM_GAPS.labels(self._around.table).inc()
        self.close()
        self._rest(RETRY_S)
        return Lost(segment, onward)

    def _rest(self, seconds: float) -> None:
        self._not_before = self._around.clock.monotonic() + seconds
