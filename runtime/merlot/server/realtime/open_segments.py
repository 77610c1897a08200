"""The partition's log as it grows: the segment that is worked on, with its tail, and the segments before it.

The consuming thread alone changes it. Readers take `log`, which is immutable; the row listener hears of each change
first. Rows behind an agreed end go into a part of their own as soon as the end is known, so that little is copied. That
part has no name until the next segment begins.
"""

from __future__ import annotations

from dataclasses import replace

from merlot.cluster.consuming.steps import HeldRows, RowEnd, Switch
from merlot.cluster.records import StreamSegmentRecord
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.realtime.partition_deps import PartitionDeps, SegmentSettings
from merlot.server.realtime.partition_log import LogPart, PartitionLog, ReleaseRule
from merlot.server.realtime.poller import RowBatch
from merlot.server.realtime.row_listener import RowListener


class OpenSegments:
    """A partition's log and what is appended to it."""

    def __init__(self, deps: PartitionDeps, listener: RowListener) -> None:
        self.log = PartitionLog()
        self._deps = deps
        self._listener = listener
        self._sequence = -1
        """Sequence of the segment that is worked on."""

    @property
    def next_offset(self) -> int | None:
        """Offset at which the stream goes on; None if nothing has begun."""
        last = self.log.parts[-1] if self.log.parts else None
        return None if last is None else (last.rows.next_offset if last.rows is not None else last.end)

    @property
    def worked(self) -> LogPart:
        """Part of the segment that is worked on."""
        part = self.log.part(self._sequence)
        assert part is not None
        return part

    def begin(self, record: StreamSegmentRecord, settings: SegmentSettings) -> None:
        """Open the segment, empty, at the end of the log."""
        self._change(self.log.with_part(_opened(record, settings)))
        self._sequence = record.sequence

    def append(self, batch: RowBatch, now_ms: int) -> None:
        """Append rows to the open segment."""
        open_part = self.log.open_part
        assert open_part is not None
        self._listener.append(open_part, batch, now_ms)

    def held(self, max_rows: int) -> HeldRows:
        """Describe all rows from the start of the segment that is worked on."""
        worked, last = self.worked, self.log.parts[-1]
        assert worked.rows is not None
        assert last.rows is not None
        row_end = None
        if worked.rows.num_docs >= max_rows:
            end = worked.rows.offset_of(max_rows - 1) + 1
            row_end = RowEnd(end, worked.rows.docs_before(end))
        num_docs = worked.rows.num_docs if worked.num_docs is None else worked.num_docs
        has_tail = last is not worked
        return HeldRows(
            offset=last.rows.next_offset,
            docs=num_docs + (last.rows.num_docs if has_tail else 0),
            num_bytes=worked.rows.memory_bytes + (last.rows.memory_bytes if has_tail else 0),
            row_end=row_end,
            exceeds_memory=self._deps.memory.must_end(worked.rows),
        )

    def end(self, end_offset: int, *, takes_tail: bool) -> None:
        """End the segment that is worked on, all of whose rows are here. Rows behind its end go to another part, or are
        hidden."""
        worked = self.worked
        if worked.rows is None:
            return
        log = self.log
        if worked.end is None:
            log = log.with_part(replace(worked, end=end_offset, num_docs=worked.rows.docs_before(end_offset)))
        if takes_tail and log.open_part is None:
            log = log.with_part(_tail(worked.rows, worked.sequence + 1, end_offset))
        self._change(log)

    def switch(self, action: Switch, old: StreamSegmentRecord | None, settings: SegmentSettings) -> None:
        """Work on the next segment: the committed file answers for the rows before its start. `old` is the segment that
        was worked on, None if it is gone."""
        new = action.record
        follows = action.carry or new.sequence == self._sequence + 1 or new.start_offset == self.worked.end
        part = self._carried(new) if action.carry else _opened(new, settings)
        done = self._done(old, new) if follows else None
        before = self.log.before(self._sequence).parts if follows else ()
        self._change(PartitionLog((*before, *(() if done is None else (done,)), part)))
        self._sequence = new.sequence

    def _carried(self, new: StreamSegmentRecord) -> LogPart:
        """Return the rows from the next segment's start on, under its name."""
        last = self.log.parts[-1]
        assert last.rows is not None
        is_tail = last.sequence != self._sequence and last.start == new.start_offset
        part = last if is_tail else _tail(last.rows, new.sequence, new.start_offset)
        assert part.rows is not None
        part.rows.request = replace(part.rows.request, name=new.name)
        return replace(part, sequence=new.sequence, name=new.name)

    def _done(self, old: StreamSegmentRecord | None, new: StreamSegmentRecord) -> LogPart | None:
        """Return the part that was worked on, now that its segment is committed or gone; None if it is gone and its
        rows are not all here. A part without rows stays for a while like any other: brokers ask by it until they have
        heard of the next."""
        worked, now = self.worked, self._deps.clock.monotonic()
        end = new.start_offset if old is None or old.end_offset is None else old.end_offset
        if worked.rows is not None and worked.rows.next_offset >= end:
            worked = replace(worked, end=end, num_docs=worked.rows.docs_before(end))
        elif old is not None:
            # Its file is here, but not all of its rows.
            worked = replace(worked, rows=None, end=end, num_docs=old.total_docs, loaded_at=now)
        if old is not None:
            return replace(worked, key=old.key_text)
        return None if worked.num_docs is None else replace(worked, loaded_at=now)

    def release(self) -> None:
        """Drop rows whose file is loaded, and parts that no broker asks for any more. A file that was made here and
        belongs to another server goes with its part."""
        deps, before = self._deps, self.log
        releasing = ReleaseRule(
            is_loaded=deps.is_loaded,
            is_elsewhere=deps.is_elsewhere,
            reported_as_of=deps.reported_as_of(),
            now=deps.clock.monotonic(),
            grace_s=deps.grace_s,
        )
        self._change(releasing.of(before, self._sequence))
        dropped = before.parts[: len(before.parts) - len(self.log.parts)]
        moved = [part.key for part in dropped if part.rows is not None and part.key and not deps.is_to_hold(part.name)]
        if moved:
            deps.files.remove(deps.table, moved)
        if any(part.loaded_at is not None and part.reported_at is None for part in self.log.parts):
            deps.on_change()  # the report may be from before

    def report_memory(self) -> None:
        """Report to the memory budget how much the rows take."""
        for part in self.log.parts:
            if part.rows is not None:
                taken = part.rows.memory_bytes
                self._deps.memory.tell(part.rows, taken, taken if part.end is None else 0)

    def close(self) -> None:
        """Report that no row takes memory any more."""
        for part in self.log.parts:
            self._deps.memory.tell(part.rows, 0, 0)

    def _change(self, log: PartitionLog) -> None:
        before = self.log
        if log == before:
            return
        self._listener.on_log_change(before, log)
        self.log = log
        remaining = {id(part.rows) for part in log.parts}
        for part in before.parts:
            if id(part.rows) not in remaining:
                self._deps.memory.tell(part.rows, 0, 0)


def _opened(record: StreamSegmentRecord, settings: SegmentSettings) -> LogPart:
    rows = ConsumingSegment(replace(settings.request, name=record.name), record.start_offset)
    return LogPart(sequence=record.sequence, start=record.start_offset, name=record.name, rows=rows)


def _tail(rows: ConsumingSegment, sequence: int, start: int) -> LogPart:
    """Return the rows from an offset on, as a part without a name."""
    return LogPart(sequence=sequence, start=start, rows=rows.split(start, replace(rows.request, name="")))
