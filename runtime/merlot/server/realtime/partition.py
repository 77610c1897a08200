"""Consumes one partition: a thread that reads, appends, and takes each segment from its beginning to its end.

What shared state says of the partition's segments comes in by `follow`; what this server has of it is `line`. Rules:

- The open segment is consumed from its start offset: after a restart again, so that nothing is lost or doubled.
- Whoever finds that a segment should end (rows, memory, age, somebody's wish) proposes the offset that it has come to.
  The first proposal holds for all. A replica that is not so far reads on up to it; one that is farther splits: what is
  behind the end becomes the beginning of the next segment. So no row that was answered is taken back.
- Behind the end it goes straight on, before anybody has made the file or named the next segment.
- The one whose proposal held makes the file (`sealing`); another replica does when it is gone, or takes too long. The
  others load the file like that of any segment.
- A replica that stays behind while the file comes in goes on where the file ends.
- One whose next message the stream no longer has says so (`positions`), and reads on behind the file that another one
  makes, which ends the segment for it. Rows are given up only if every replica has lost them.
- While a partition is paused, what was read beyond the last end stays, and is asked for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Final

from merlot import telemetry
from merlot.clock import Clock
from merlot.cluster.consuming.commits import Committed, propose_end
from merlot.cluster.consuming.machine import LOST
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.consuming.positions import Positions, publish_position
from merlot.cluster.consuming.transactions import End
from merlot.cluster.records import AskedEnd, ConsumingStatus, PositionRecord, StreamSegmentRecord
from merlot.errors import MerlotError
from merlot.ids import InstanceId
from merlot.segment.build.request import BuildRequest
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.realtime.intake import Batch, Counts, Intake
from merlot.server.realtime.line import Line, Part, released
from merlot.server.realtime.memory import MemoryRoom
from merlot.server.realtime.sealing import Sealing
from merlot.spec.stream import FlushSpec
from merlot.streams.protocol import OffsetOutOfRangeError, OffsetRange

_LOG = logging.getLogger(__name__)

POLL_S: Final = 0.1
"""Longest wait for messages: what else there is to do waits so long."""
RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 30.0
TAKE_OVER_MS: Final = 120_000
"""After it another replica makes the file of a segment, though the one that was to is alive."""
CATCH_UP_S: Final = 10.0
"""A replica that begins is asked once it has what the stream had then, or so long after: what is behind by hours is
answered as far as it is."""
LOST_HOLD_S: Final = 60.0
"""Before a replica gives up rows that the stream no longer has, and that others may have read who are silent."""
MAX_AHEAD: Final = 2
"""Segments' worth of rows that may wait for the one before to be committed; then the thread rests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What decides a segment's rows and file, made of its pinned settings; and when it ends."""

    request: BuildRequest
    flush: FlushSpec
    latest: Callable[[], OffsetRange]
    open_intake: Callable[[int, Counts], Intake]
    after_gap: Callable[[int, OffsetRange], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the partitions of a table share."""

    sealing: Sealing
    seals: Executor
    clock: Clock
    room: MemoryRoom
    settings_of: Callable[[StreamSegmentRecord], Settings]
    is_loaded: Callable[[str], bool]
    """Whether a sealed segment, `name@crc`, is served."""
    is_live: Callable[[str], bool]
    """Whether a server may still make the file that it was to."""
    on_change: Callable[[], None]
    """Names or errors have changed; any thread."""
    grace_s: float


def why_end(
    record: StreamSegmentRecord, part: Part, flush: FlushSpec, room: MemoryRoom, now_ms: int, *, is_ready: bool
) -> str:
    """Why a segment shall end now; empty: it goes on. `is_ready`: this replica has caught up with the stream."""
    assert part.rows is not None
    if record.asked_end is not AskedEnd.NO:
        # A replica that has just begun would end it where it began, and all others would read again what they have.
        return "asked" if is_ready else ""
    if not part.rows.num_docs:
        return ""
    if part.rows.num_docs >= flush.rows:
        return "rows"
    if part.rows.memory_bytes >= flush.bytes:
        return "bytes"
    if room.must_end(part.rows):
        return "memory"
    return "age" if is_ready and now_ms - record.creation_time_ms >= flush.age_ms else ""


class PartitionConsumer:
    """One partition of a table; `start` runs its thread. `line`, `error` and `counts` may be read by anybody."""

    def __init__(self, partition: int, around: Around) -> None:
        self.partition = partition
        self.line = Line()
        self.counts = Counts()
        self.error = ""
        self.is_ready = False
        """Whether it has caught up with the stream, so that its rows may be asked for."""
        self._around = around
        self._records: Mapping[int, StreamSegmentRecord] = {}
        self._epoch = -1
        self._settings: Settings | None = None
        self._pinned_id = ""
        self._intake: Intake | None = None
        self._target: int | None = None
        self._began = 0.0
        self._sealings: dict[int, Future[Committed]] = {}
        self._not_before: dict[str, float] = {}
        """Until when what failed is not tried again, by what it is."""
        self._num_failures = 0
        self._servers: Collection[InstanceId] = ()
        self._positions: Positions = {}
        self._lost_since: float | None = None
        self._names: list[str] = []
        self._is_stopping = threading.Event()
        name = f"consume-{around.sealing.table}-{partition}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; what it has may be asked for until `close`."""
        self._is_stopping.set()

    def join(self) -> None:
        """Until the thread has ended."""
        if self._thread.is_alive():
            self._thread.join()
        for part in self.line.parts:
            self._around.room.tell(part.rows, 0, 0)

    def follow(
        self, records: Mapping[int, StreamSegmentRecord], epoch: int, servers: Collection[InstanceId] | None = None
    ) -> None:
        """What shared state says of the partition's segments, by sequence; `servers`: who consumes it, if known."""
        if servers is not None:
            self._servers = servers
        if epoch >= self._epoch:
            self._records, self._epoch = records, epoch

    def follow_positions(self, positions: Positions) -> None:
        """How far replicas have come that lost their place in the stream."""
        self._positions = positions

    @property
    def names(self) -> list[str]:
        """Segments that may be asked for as `name@0`."""
        return self.line.names() if self.is_ready else []

    @property
    def next_offset(self) -> int | None:
        """How far it has come; None if it has not begun."""
        last = self.line.parts[-1] if self.line.parts else None
        return None if last is None else (last.rows.next_offset if last.rows is not None else last.end)

    # What follows is the thread's.

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self._step()
                self._num_failures = 0
                self._tell_error("")
            except MerlotError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - the thread's outermost loop
                _LOG.exception("partition not consumed by a bug %s", self._where)
                self._fail(error)
        self._close_intake()

    def _fail(self, error: Exception) -> None:
        """Begin anew behind what is appended, after a while."""
        self._close_intake()
        if not self._num_failures:
            _LOG.warning("partition not consumed %s cause=%s", self._where, error)
        telemetry.STREAM_FAILURES.labels(self._around.sealing.table, type(error).__name__).inc()
        self._tell_error(str(error) if isinstance(error, MerlotError) else f"internal error {type(error).__name__}")
        wait_s = min(LONGEST_RETRY_S, RETRY_S * 2 ** min(self._num_failures, 10))
        self._num_failures += 1
        self._is_stopping.wait(wait_s)

    def _tell_error(self, text: str) -> None:
        if self._intake is not None and self._intake.stopped_at is not None:
            text = f"bad message, nothing behind it is consumed {self._where} offset={self._intake.stopped_at}"
        if text != self.error:
            self.error = text
            self._around.on_change()

    @property
    def _where(self) -> str:
        return f"table={self._around.sealing.table} partition={self.partition}"

    def _step(self) -> None:
        self._begin()
        for sequence in [part.sequence for part in self.line.parts]:
            part = self.line.part(sequence)
            if part is not None:
                self._take_on(part)
        self._finish_sealings()
        now = self._around.clock.monotonic()
        self.line = released(self.line, self._around.is_loaded, now, self._around.grace_s)
        self._tell_room()
        head = self.line.head
        if head is None or self._must_rest(head):
            self._is_stopping.wait(POLL_S)
            self._end_at_rest()
        else:
            self._consume(head)
        if self.names != self._names:
            self._names = self.names
            self._around.on_change()

    def _end_at_rest(self) -> None:
        """Where nothing is read, there is all the more reason to end: memory is used up, or new settings would go on
        behind a bad message."""
        head = self.line.head
        if head is not None and head.rows is not None and self._intake is not None:
            self._note_ready()
            self._end_if_due(head)

    def _tell_room(self) -> None:
        for part in self.line.parts:
            if part.rows is not None:
                taken = part.rows.memory_bytes
                self._around.room.tell(part.rows, taken, taken if part.end is None else 0)

    def _must_rest(self, head: Part) -> bool:
        assert head.rows is not None
        assert self._settings is not None
        if self._intake is not None and self._intake.stopped_at is not None:
            return True
        is_ahead = not head.name and head.rows.num_docs >= MAX_AHEAD * self._settings.flush.rows
        record = self._records.get(head.sequence)
        is_paused = record is not None and record.status == ConsumingStatus.PAUSED
        is_paused |= head.name == "" and self._is_pausing(head.sequence)
        return is_ahead or is_paused or self._around.room.is_full

    def _is_pausing(self, sequence: int) -> bool:
        """Whether the segment is one that is not to be consumed."""
        before = self._records.get(sequence - 1)
        return before is not None and before.is_open and before.asked_end is AskedEnd.PAUSE

    # Where a line begins, and goes on.

    def _begin(self) -> None:
        records = self._records
        last = max(records, default=None)
        if last is None:
            return
        head = self.line.head
        record = None if head is None else records.get(head.sequence)
        if head is None or (record is None and last > head.sequence):
            self._begin_at(records[last])
        elif record is not None and not record.is_open and self._around.is_loaded(record.key_text):
            self._jump(head, record)

    def _begin_at(self, record: StreamSegmentRecord) -> None:
        """Consume the open segment, behind what is here if nothing is between the two."""
        is_consumed = record.status in (ConsumingStatus.CONSUMING, ConsumingStatus.SEALING)
        if not is_consumed or self.line.part(record.sequence) is not None:
            return
        before = self.line.parts[-1] if self.line.parts else None
        if before is not None and not (before.is_whole and self._are_neighbours(before.sequence, record.sequence)):
            for part in self.line.parts:
                self._drop(part)
        self._open(record.sequence, record.start_offset, record)

    def _are_neighbours(self, sequence: int, later: int) -> bool:
        """Whether no segment is between two: those without rows leave no record."""
        return not any(sequence < one < later for one in self._records)

    def _drop(self, part: Part) -> None:
        """Forget a part; if it is the head, what was read of it."""
        if not part.is_whole:
            self._close_intake()
        self._around.room.tell(part.rows, 0, 0)
        self.line = Line(tuple(one for one in self.line.parts if one.sequence != part.sequence))

    def _jump(self, head: Part, record: StreamSegmentRecord) -> None:
        """The file of the segment is here before all of its rows: go on where it ends."""
        assert head.rows is not None
        assert record.end_offset is not None
        if head.rows.next_offset >= record.end_offset:
            return
        following = self._records.get(record.sequence + 1)
        if following is None:
            return
        _LOG.info("replica goes on behind a segment that it loads %s segment=%s", self._where, record.name)
        done = replace(head, name=record.name, key=record.key_text, end=record.end_offset, num_docs=head.rows.num_docs)
        self.line = self.line.with_part(done)
        self._open(following.sequence, following.start_offset, following)

    def _open(self, sequence: int, start: int, record: StreamSegmentRecord) -> None:
        """A new head, empty; the stream is read from its start on."""
        settings = self._set(record)
        request = replace(settings.request, name=record.name if record.sequence == sequence else "")
        part = Part(sequence=sequence, start=start, name=request.name, rows=ConsumingSegment(request, start))
        self.line = self.line.with_part(part)
        if self._intake is not None:
            self._intake.seek(start)

    def _set(self, record: StreamSegmentRecord) -> Settings:
        if self._settings is None or record.pinned_id != self._pinned_id:
            self._close_intake()
            self._settings, self._pinned_id = self._around.settings_of(record), record.pinned_id
        return self._settings

    # What shared state says of each part.

    def _take_on(self, part: Part) -> None:
        record = self._records.get(part.sequence)
        if record is None:
            self._note_gone(part)
            return
        if not part.name:
            named = self._named(part, record)
            if named is None:
                return
            part = named
        if part.end is None and record.end_offset is not None:
            part = self._ended(part, record)
        if not part.key and not record.is_open and part.end is not None:
            part = replace(part, key=record.key_text)
            self.line = self.line.with_part(part)
        if part.end is not None and record.status == ConsumingStatus.SEALING:
            self._seal(part, record)

    def _note_gone(self, part: Part) -> None:
        """A segment without rows has no record once it has ended; one that was removed is asked for no more."""
        if part.end is None or max(self._records, default=-1) < part.sequence:
            return
        if not part.num_docs:
            self._drop(part)
        elif part.loaded_at is None:
            self.line = self.line.with_part(replace(part, loaded_at=self._around.clock.monotonic()))

    def _named(self, part: Part, record: StreamSegmentRecord) -> Part | None:
        """The segment that this server has gone on into has a name now, if it is the one that it took it for."""
        assert part.rows is not None
        if record.start_offset != part.start or record.pinned_id != self._pinned_id:
            _LOG.info("next segment is another one, read again %s segment=%s", self._where, record.name)
            self._drop(part)
            return None
        part.rows.request = replace(part.rows.request, name=record.name)
        named = replace(part, name=record.name)
        self.line = self.line.with_part(named)
        return named

    def _ended(self, part: Part, record: StreamSegmentRecord) -> Part:
        """The part cut at its agreed end, with a head behind it; as it is if it has not come so far."""
        assert part.rows is not None
        assert record.end_offset is not None
        end = record.end_offset
        if part.rows.next_offset < end:
            return part
        ended = replace(part, end=end, num_docs=part.rows.docs_before(end))
        start = end if record.next_offset is None else record.next_offset
        following = self._records.get(part.sequence + 1)
        is_other = following is not None and following.pinned_id != self._pinned_id
        carries = start == end and not record.next_pinned and not is_other
        parts = self.line.with_part(ended)
        if carries and part.rows.next_offset > end:
            tail = part.rows.split(end, replace(part.rows.request, name=""))
            self.line = parts.with_part(Part(sequence=part.sequence + 1, start=end, rows=tail))
        elif carries:
            tail = ConsumingSegment(replace(part.rows.request, name=""), end)
            self.line = parts.with_part(Part(sequence=part.sequence + 1, start=end, rows=tail))
        else:
            # Rows behind the end are to be read by other settings, or elsewhere: the record that comes says how.
            self.line = parts
            self._close_intake()
        return ended

    def _seal(self, part: Part, record: StreamSegmentRecord) -> None:
        around = self._around
        is_mine = record.sealer == around.sealing.instance
        is_late = around.clock.now_ms() - record.sealing_ms >= TAKE_OVER_MS
        if not (is_mine or is_late or not around.is_live(record.sealer)):
            return
        if part.sequence in self._sealings or part.rows is None or part.num_docs is None:
            return
        if self._may_try(part.name):
            self._sealings[part.sequence] = around.seals.submit(around.sealing.seal, record, part.rows, part.num_docs)

    def _finish_sealings(self) -> None:
        for sequence, future in list(self._sealings.items()):
            if not future.done():
                continue
            del self._sealings[sequence]
            part = self.line.part(sequence)
            error = future.exception()
            if error is not None:
                name = "" if part is None else part.name
                self._not_before[name] = self._around.clock.monotonic() + RETRY_S
                _LOG.warning("segment not sealed, tried again %s segment=%s cause=%s", self._where, name, error)
                telemetry.STREAM_FAILURES.labels(self._around.sealing.table, type(error).__name__).inc()
                self._tell_error(f"segment not sealed segment={name} cause={error}")
                continue
            view = future.result().view
            self.follow(chains(view.stream_segments).get(self.partition, {}), view.epoch)

    def _may_try(self, what: str) -> bool:
        return self._around.clock.monotonic() >= self._not_before.get(what, 0.0)

    # Rows.

    def _consume(self, head: Part) -> None:
        assert self._settings is not None
        assert head.rows is not None
        if not self._end_if_due(head):
            return
        intake = self._intake or self._open_intake(head.rows.next_offset)
        try:
            batch = intake.poll(POLL_S)
        except OffsetOutOfRangeError as error:
            self._lost(head, error)
            return
        self._lost_since = None
        self._append(batch)
        self._note_ready()

    def _open_intake(self, start: int) -> Intake:
        assert self._settings is not None
        if self._target is None:
            self._target = self._settings.latest().latest
            self._began = self._around.clock.monotonic()
        self._intake = self._settings.open_intake(start, self.counts)
        return self._intake

    def _append(self, batch: Batch) -> None:
        """All rows of a batch, over as many segments as they need."""
        now_ms = self._around.clock.now_ms()
        while True:
            head = self.line.head
            assert head is not None
            assert head.rows is not None
            assert self._settings is not None
            room = self._settings.flush.rows - head.rows.num_docs
            if len(batch) <= room or not self._may_end(head):
                batch.append_to(head.rows, now_ms)
                return
            first, batch = batch.cut(max(1, room))
            first.append_to(head.rows, now_ms)
            self._propose(head, "rows")
            if self.line.head is None:
                self._close_intake()  # what is left is read again
                return

    def _may_end(self, head: Part) -> bool:
        """Whether an end may be proposed now."""
        record = self._records.get(head.sequence)
        is_consumed = record is not None and record.status == ConsumingStatus.CONSUMING
        return bool(head.name) and is_consumed and self._may_try("propose")

    def _note_ready(self) -> None:
        if self.is_ready:
            return
        offset = self.next_offset
        is_there = offset is not None and self._target is not None and offset >= self._target
        self.is_ready = is_there or self._around.clock.monotonic() - self._began >= CATCH_UP_S

    def _end_if_due(self, head: Part) -> bool:
        """Propose the end of the head if it is due; returns whether there is still one to append to."""
        record = self._records.get(head.sequence)
        if record is None or not self._may_end(head):
            return True
        assert self._settings is not None
        now_ms = self._around.clock.now_ms()
        reason = why_end(record, head, self._settings.flush, self._around.room, now_ms, is_ready=self.is_ready)
        if not reason and self._can_help(head):
            reason = "lost by others"
        if reason:
            self._propose(head, reason)
        return self.line.head is not None

    def _propose(self, head: Part, reason: str, next_offset: int | None = None) -> None:
        assert head.rows is not None
        around = self._around
        end = End(
            segment=head.name,
            offset=self._end_of(head.rows) if next_offset is None else head.rows.next_offset,
            sealer=around.sealing.instance,
            now_ms=around.clock.now_ms(),
            next_offset=next_offset,
        )
        try:
            record = propose_end(around.sealing.metastore, around.sealing.table, end)
        except MerlotError as error:
            self._not_before["propose"] = around.clock.monotonic() + RETRY_S
            self._tell_error(f"end of a segment not agreed segment={head.name} cause={error}")
            return
        _LOG.info("segment ends %s segment=%s reason=%s offset=%d", self._where, head.name, reason, end.offset)
        if record is not None:
            self._records = {**self._records, record.sequence: record}
            self._take_on(head)

    def _end_of(self, rows: ConsumingSegment) -> int:
        """Where the segment ends: behind its full number of rows, though there are more, if it could not end before."""
        assert self._settings is not None
        full = self._settings.flush.rows
        offset = rows.offset_of(full) if rows.num_docs > full else rows.next_offset
        return offset if rows.docs_before(offset) else rows.next_offset

    def _lost(self, head: Part, error: OffsetOutOfRangeError) -> None:
        """The stream no longer has what comes next."""
        assert self._settings is not None
        assert head.rows is not None
        onward = self._settings.after_gap(error.wanted, error.available)
        if onward is None:
            raise error
        text = "messages are lost, consumption goes on behind them %s from=%d to=%d"
        _LOG.error(text, self._where, error.wanted, onward)
        telemetry.STREAM_GAPS.labels(self._around.sealing.table).inc()
        self._close_intake()
        now = self._around.clock.monotonic()
        self._lost_since = self._lost_since or now
        if head.name and self._may_try("lost"):
            self._not_before["lost"] = now + RETRY_S
            self._tell_lost(head, onward)
            if self._is_lost_by_all(head, onward):
                self._propose(head, "lost", next_offset=onward)
        self._is_stopping.wait(POLL_S)

    def _tell_lost(self, head: Part, onward: int) -> None:
        """Others may have read on: the file that they make is loaded then."""
        assert head.rows is not None
        sealing = self._around.sealing
        position = PositionRecord(
            segment=head.name, instance=sealing.instance, offset=head.rows.next_offset, reason=LOST, resume=onward
        )
        publish_position(sealing.metastore, sealing.table, position)

    def _is_lost_by_all(self, head: Part, onward: int) -> bool:
        """Whether nobody can read what is lost here, and nobody has come farther than this replica."""
        assert head.rows is not None
        assert self._lost_since is not None
        mine = self._around.sealing.instance
        told = self._lost_positions(head)
        silent = {one for one in self._servers if one != mine and one not in told}
        is_long_ago = self._around.clock.monotonic() - self._lost_since >= LOST_HOLD_S
        if silent and not (is_long_ago and not any(map(self._around.is_live, silent))):
            return False
        return all((one.offset, name) <= (head.rows.next_offset, mine) for name, one in told.items())

    def _can_help(self, head: Part) -> bool:
        """Whether others have lost messages that this replica has read, and can read on from where it is."""
        assert head.rows is not None
        offset = head.rows.next_offset
        told = self._lost_positions(head)
        told.pop(self._around.sealing.instance, None)
        is_able = self._lost_since is None
        return is_able and any(one.resume is not None and one.resume <= offset for one in told.values())

    def _lost_positions(self, head: Part) -> dict[InstanceId, PositionRecord]:
        told = self._positions.get(head.name, {})
        return {name: one for name, one in told.items() if one.reason == LOST and name in self._servers}

    def _close_intake(self) -> None:
        intake, self._intake = self._intake, None
        if intake is not None:
            intake.close()
