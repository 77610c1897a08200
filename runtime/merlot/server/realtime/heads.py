"""What a server has of a partition, as it grows: the segment it works on, with its tail, and those before it.

The consuming thread alone changes it. Readers take `line`, which is immutable; whatever changes it is told to the sink
first. Rows behind an agreed end go into a part of their own as soon as the end is known, so that little is copied; that
part has no name until the next segment begins.
"""

from __future__ import annotations

from dataclasses import replace

from merlot.cluster.consuming.steps import Held, RowEnd, Switch
from merlot.cluster.records import StreamSegmentRecord
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.realtime.around import Around, Settings
from merlot.server.realtime.intake import Batch
from merlot.server.realtime.line import Line, Part, Released
from merlot.server.realtime.sink import RowSink


class Heads:
    """A partition's line and what is appended to it."""

    def __init__(self, around: Around, sink: RowSink) -> None:
        self.line = Line()
        self._around = around
        self._sink = sink
        self._sequence = -1
        """Of the segment that is worked on."""

    @property
    def next_offset(self) -> int | None:
        """Where the stream goes on; None if nothing has begun."""
        last = self.line.parts[-1] if self.line.parts else None
        return None if last is None else (last.rows.next_offset if last.rows is not None else last.end)

    @property
    def worked(self) -> Part:
        """The part of the segment that is worked on."""
        part = self.line.part(self._sequence)
        assert part is not None
        return part

    def begin(self, record: StreamSegmentRecord, settings: Settings) -> None:
        """Open the segment, empty, behind what is here."""
        self._change(self.line.with_part(_opened(record, settings)))
        self._sequence = record.sequence

    def append(self, batch: Batch, now_ms: int) -> None:
        """Add rows at the end."""
        head = self.line.head
        assert head is not None
        self._sink.append(head, batch, now_ms)

    def held(self, max_rows: int) -> Held:
        """All rows from the start of the segment that is worked on."""
        worked, last = self.worked, self.line.parts[-1]
        assert worked.rows is not None
        assert last.rows is not None
        row_end = None
        if worked.rows.num_docs >= max_rows:
            end = worked.rows.offset_of(max_rows - 1) + 1
            row_end = RowEnd(end, worked.rows.docs_before(end))
        num_docs = worked.rows.num_docs if worked.num_docs is None else worked.num_docs
        has_tail = last is not worked
        return Held(
            offset=last.rows.next_offset,
            docs=num_docs + (last.rows.num_docs if has_tail else 0),
            num_bytes=worked.rows.memory_bytes + (last.rows.memory_bytes if has_tail else 0),
            row_end=row_end,
            is_too_much=self._around.room.must_end(worked.rows),
        )

    def end(self, end_offset: int, *, takes_tail: bool) -> None:
        """End the segment that is worked on, all of which is here; what is behind is another part's, or hidden."""
        worked = self.worked
        if worked.rows is None:
            return
        line = self.line
        if worked.end is None:
            line = line.with_part(replace(worked, end=end_offset, num_docs=worked.rows.docs_before(end_offset)))
        if takes_tail and line.head is None:
            line = line.with_part(_tail(worked.rows, worked.sequence + 1, end_offset))
        self._change(line)

    def switch(self, action: Switch, old: StreamSegmentRecord | None, settings: Settings) -> None:
        """Work on the next segment: the committed file answers for the rows before its start. `old`: the segment that
        was worked on; None if it is gone."""
        new = action.record
        follows = action.carry or new.sequence == self._sequence + 1 or new.start_offset == self.worked.end
        part = self._carried(new) if action.carry else _opened(new, settings)
        done = self._done(old, new) if follows else None
        before = self.line.before(self._sequence).parts if follows else ()
        self._change(Line((*before, *(() if done is None else (done,)), part)))
        self._sequence = new.sequence

    def _carried(self, new: StreamSegmentRecord) -> Part:
        """The rows from the next segment's start on, under its name."""
        last = self.line.parts[-1]
        assert last.rows is not None
        is_tail = last.sequence != self._sequence and last.start == new.start_offset
        part = last if is_tail else _tail(last.rows, new.sequence, new.start_offset)
        assert part.rows is not None
        part.rows.request = replace(part.rows.request, name=new.name)
        return replace(part, sequence=new.sequence, name=new.name)

    def _done(self, old: StreamSegmentRecord | None, new: StreamSegmentRecord) -> Part | None:
        """The part that was worked on, now that its segment is committed or gone; None if its rows are not here. One
        without rows stays for a while like any other: brokers ask by it until they have heard of the next."""
        worked, now = self.worked, self._around.clock.monotonic()
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
        """Let go of rows whose file is loaded, and of parts that nobody asks for any more."""
        around, before = self._around, self.line
        releasing = Released(
            is_loaded=around.is_loaded,
            told_as_of=around.told_as_of(),
            now=around.clock.monotonic(),
            grace_s=around.grace_s,
        )
        self._change(releasing.of(before, self._sequence))
        if any(part.loaded_at is not None and part.told_at is None for part in self.line.parts):
            around.on_change()  # the report may be from before

    def tell_room(self) -> None:
        """How much memory the rows take."""
        for part in self.line.parts:
            if part.rows is not None:
                taken = part.rows.memory_bytes
                self._around.room.tell(part.rows, taken, taken if part.end is None else 0)

    def close(self) -> None:
        """Nothing takes memory any more."""
        for part in self.line.parts:
            self._around.room.tell(part.rows, 0, 0)

    def _change(self, line: Line) -> None:
        before = self.line
        if line == before:
            return
        self._sink.on_line(before, line)
        self.line = line
        kept = {id(part.rows) for part in line.parts}
        for part in before.parts:
            if id(part.rows) not in kept:
                self._around.room.tell(part.rows, 0, 0)


def _opened(record: StreamSegmentRecord, settings: Settings) -> Part:
    rows = ConsumingSegment(replace(settings.request, name=record.name), record.start_offset)
    return Part(sequence=record.sequence, start=record.start_offset, name=record.name, rows=rows)


def _tail(rows: ConsumingSegment, sequence: int, start: int) -> Part:
    """The rows from an offset on, without a name yet."""
    return Part(sequence=sequence, start=start, rows=rows.split(start, replace(rows.request, name="")))
