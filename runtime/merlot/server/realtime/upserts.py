"""Upserts of one partition on a server: the index of its keys, told of every row, and what queries see of it.

The index (`merlot.upsert`) is fed by the partition's thread: first with the sealed segments in the order of the stream,
then with rows as they come, so that every replica, and one that begins anew, comes to the same valid docs. Docs of a
segment keep their numbers when it is sealed; so do their bits. Readers take a `View`, one reference to the bits of all
segments of the partition at one moment. Where rows that the index was told of are given up, it is built anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.clock import Clock
from merlot.cluster.consuming import recovery
from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import MerlotError, UnavailableError
from merlot.segment.reader import Segment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.server.realtime.files import FileGoneError, Files
from merlot.server.realtime.intake import Batch
from merlot.server.realtime.line import Line, Part
from merlot.server.realtime.previous import StoredRows
from merlot.server.realtime.rewritten import Records
from merlot.server.realtime.snapshots import Captured, Found, Snapshots
from merlot.server.realtime.views import View
from merlot.spec.schema import FieldSpec
from merlot.spec.upserting import PruningStrategy, SnapshotStore
from merlot.upsert.checkpoint import Checkpoint
from merlot.upsert.index import SHARDS
from merlot.upsert.partition import PartitionUpserts, Stats
from merlot.upsert.rules import Rules

_LOG = logging.getLogger(__name__)

REPLAY_DOCS: Final = 1 << 20
"""Docs of a sealed segment that are read at a time."""
TIDY_S: Final = 0.01
"""Longest time between two polls for what a commit left to prune; of a small index that is all of it."""
Words = NDArray[np.uint64]
Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the partitions of an upsert table share."""

    where: str
    """In logs and errors."""
    rules_of: Callable[[StreamSegmentRecord], Rules]
    """By what was pinned where the segment began."""
    borrow: Callable[[str], AbstractContextManager[Segment | None]]
    """A sealed segment, `name@crc`, held while it is read; None if it is not loaded. Blocks."""
    scan_s_of: Callable[[StreamSegmentRecord], float]
    """Seconds in which all keys are looked through for expired ones, where the settings say so."""
    misplaced: Callable[[pa.Table], int]
    """How many rows of a batch are another partition's, by what the table declares."""
    clock: Clock
    on_change: Callable[[], None]
    """Segments can be asked for, or no more; any thread."""
    snapshots: Snapshots | None = None
    """The partition's; None: none are kept, whatever the settings say."""


class UpsertSink:
    """Where the rows of a partition of an upsert table go; `view` and `stats` are for any thread, the rest is the
    consuming thread's."""

    def __init__(self, around: Surroundings, records: Callable[[], Records]) -> None:
        self._around = around
        self._where = around.where
        self._records = records
        """The partition's segments by sequence, as shared state has them."""
        self._index: PartitionUpserts | None = None
        self._numbers: dict[int, int] = {}
        self._num_docs: dict[int, int] = {}
        """Docs of each segment that the index was told of."""
        self._decided_by: dict[int, str] = {}
        """Settings that decided the newest of them."""
        self._changed_at: int | None = None
        """Segment whose settings are others than those before it, while it has no row: it may come to nothing."""
        self.files = Files(around.where, around.borrow, around.clock)
        """The files of sealed segments, by which their docs are numbered."""
        self._next_number = 0
        self._line = Line()
        self._unloaded: list[int] = []
        """Segments of a checkpoint whose keys are not in the index yet."""
        self._begun_with = -1
        """The last of them, until they are."""
        self._kept_in: SnapshotStore | None = None
        self._scan_s = 0.0
        self._next_scan = 0.0
        self._settings = ""
        self.view: View | None = None
        """None: the index is being built, and nothing of the partition can be asked for."""
        self._point: tuple[Records, int] = ({}, -1)
        self.is_building = False
        """Whether what is shown is of an index that another one is about to replace."""
        self.waits_for = ""
        """Key of the sealed segment without which the index cannot be built."""
        self.num_misplaced = 0
        """Rows since the partition is consumed here that are another partition's, by what the table declares."""

    @property
    def settings(self) -> str:
        """What rows that come now are decided by, as it was pinned."""
        return self._settings

    @property
    def snapshots(self) -> Snapshots | None:
        """The checkpoint of the partition."""
        return self._around.snapshots

    @property
    def records(self) -> Records:
        """The partition's segments by sequence."""
        return self._records()

    @property
    def stats(self) -> Stats:
        """Counts of keys and docs."""
        index = self._index
        return Stats() if index is None else index.stats

    # What the partition's thread tells; see `RowSink`.

    def may_begin(self) -> bool:
        """Once every sealed segment is in the index."""
        with self._all_or_nothing():
            is_built = self._add_sealed(None)
            if is_built:
                self._take_cut()
                self._show()
        return is_built

    def append(self, part: Part, batch: Batch, now_ms: int) -> None:
        """Have the index decide, add the rows that are kept, and show both."""
        assert part.rows is not None
        if not len(batch):
            batch.append_to(part.rows, now_ms)
            return
        self.settle()
        index = self._index
        assert index is not None
        with self._all_or_nothing():
            outcome = index.add(batch.rows, self._numbers[part.sequence], part.rows.num_docs)
            replace(batch, rows=outcome.rows, offsets=batch.offsets[outcome.kept]).append_to(part.rows, now_ms)
        self._num_docs[part.sequence] = part.rows.num_docs
        self._note_decided(part.sequence)
        index.publish()
        self._show()
        self.num_misplaced += self._around.misplaced(batch.rows)

    def settle(self) -> None:
        """Build the index, if it had to be given up; raises UnavailableError while a sealed segment is not here."""
        if self._index is None and self._line.parts:
            self._rebuild(self._line)
        until = self._around.clock.monotonic() + TIDY_S
        while self._index is not None and self._index.tidy() and self._around.clock.monotonic() < until:
            pass
        if self._around.snapshots is not None and self._index is not None:
            self._around.snapshots.tend(self._records(), self._kept_in)
        if self._index is not None and not self._unloaded:
            self._follow_files(self._index)
        now = self._around.clock.monotonic()
        if self._index is not None and self._index.rules.pruning is PruningStrategy.SCAN and now >= self._next_scan:
            self._index.scan()
            self._next_scan = now + self._scan_s / SHARDS

    def on_line(self, before: Line, after: Line) -> None:
        """Follow the parts of the line. What cannot be followed now gives the index up; `settle` builds it."""
        self._line = after
        try:
            with self._all_or_nothing():
                self._follow(before, after)
        except MerlotError as error:
            _LOG.warning("upserts are not followed, nothing is answered until they are %s cause=%s", self._where, error)
        except BaseException:
            self._line = before  # which is still what readers are given
            raise

    def close(self) -> None:
        """Hold nothing more."""
        if self._around.snapshots is not None and self._index is not None:
            self._around.snapshots.close(self._records(), self._kept_in)
        self._forget()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Give the index up if it was told of some rows only, or of rows that nobody has; `settle` builds it anew."""
        try:
            yield
        except BaseException:
            self._forget()
            raise

    def _follow(self, before: Line, after: Line) -> None:
        is_lost = any(self._is_lost(one, before, after) for one in self._num_docs)
        if self._index is None or is_lost:
            self._rebuild(after)
            return
        if self._has_followed_nobody() or self._is_to_recover():
            self._rebuild(after, shown=self.view)
            return
        for part in after.parts:
            old = before.part(part.sequence)
            if part.num_docs is not None and (old is None or old.num_docs is None):
                self._capture(part.sequence, part.num_docs)
        for part in after.parts:
            if part.sequence not in self._numbers:
                self._open(part, after)
        if after.head is not None:
            self._follow_rules(after.head.sequence)  # an empty tail had no record to say by which
        self._remove_gone(after)
        if len(after.parts) != len(before.parts) or after.parts[-1:] != before.parts[-1:]:
            self._take_cut()
        self._show()

    def _is_lost(self, sequence: int, before: Line, after: Line) -> bool:
        """Whether the index was told of rows that are in no part of the line any more, nor in a sealed segment, or
        decided them by other settings than their segment turned out to have."""
        told, part, record = self._num_docs[sequence], after.part(sequence), self._records().get(sequence)
        if told and record is not None and self._is_decided_otherwise(sequence, record):
            return True
        if part is not None and part.rows is not None:
            return told > _stored(part) + self._carried(after.part(sequence + 1))
        if record is not None and not record.is_open:
            if told and self.files.is_unknown(record):
                return True
            return told > record.total_docs and self.files.is_numbered_by(record)
        old = before.part(sequence)
        return told > 0 and part is None and old is not None and old.rows is not None

    def _is_decided_otherwise(self, sequence: int, record: StreamSegmentRecord) -> bool:
        return sequence >= self._recovered_from() and record.upsert != self._decided_by[sequence]

    def _is_to_recover(self) -> bool:
        """Whether stored rows have to be decided anew, with all keys: what is shown until then is as it was meant."""
        records, point = self._records(), self._recovered_from()
        earlier = (one for one in self._num_docs if one < point and one in records and self._num_docs[one])
        return any(recovery.decided_by(records, one, point) != self._decided_by.get(one) for one in earlier)

    def _recovered_from(self) -> int:
        """See `recovery.point_of`."""
        records = self._records()
        if self._point[0] is not records:
            self._point = (records, recovery.point_of(records))
        return self._point[1]

    def _carried(self, tail: Part | None) -> int:
        """Docs that were told as those of the part before."""
        is_new = tail is not None and tail.sequence not in self._num_docs
        return _stored(tail) if is_new and tail is not None and tail.rows is not None else 0

    # The index.

    def _open(self, part: Part, line: Line) -> None:
        """A part that is new: empty, or the tail of the one before."""
        previous = line.part(part.sequence - 1)
        if part.rows is None:
            return
        if part.rows.num_docs and previous is not None and self._is_told(previous, part.rows.num_docs):
            self._move_tail(previous, part)
            return
        if not self._add_sealed(part.sequence):
            raise UnavailableError(f"sealed segment is not here {self._where} segment={self.waits_for}")
        self._follow_rules(part.sequence)
        self._tell(part.sequence, part.rows.rows(_stored(part)), 0)
        assert self._index is not None
        self._index.committed()

    def _move_tail(self, previous: Part, part: Part) -> None:
        """The docs behind the end of a part are another's now."""
        assert self._index is not None
        assert previous.num_docs is not None
        number = self._numbers[part.sequence] = self._new_number()
        self._index.move_tail(self._numbers[previous.sequence], previous.num_docs, number)
        self._index.committed()
        self._num_docs[part.sequence] = self._num_docs[previous.sequence] - previous.num_docs
        self._note_decided(part.sequence)
        self._num_docs[previous.sequence] = previous.num_docs

    def _is_told(self, previous: Part, num_docs: int) -> bool:
        """Whether the index has so many docs behind the end of a part."""
        docs = previous.num_docs
        return docs is not None and self._num_docs.get(previous.sequence, 0) == docs + num_docs

    def _add_sealed(self, before: int | None) -> bool:
        """Tell the index of every sealed doc before a segment that it was not told of; False if one is not here."""
        if self._index is None:
            self._recover(before)
        if not self._load_keys():
            return False
        last = self._records().get(self._begun_with)
        for sequence, record in sorted(self._records().items()):
            if record.is_open or (before is not None and sequence >= before):
                continue
            if self._num_docs.get(sequence, -1) >= record.total_docs:
                continue
            with self._around.borrow(record.key_text) as segment:
                if segment is None:
                    self.waits_for = record.key_text
                    return False
                self._replay(record, segment)
                last = record
        self.waits_for = ""
        if last is not None:
            self._capture(last.sequence, last.total_docs)
        self._begun_with = -1
        if self._index is None and (first := min(self._records(), default=None)) is not None:
            self._follow_rules(first)
        return self._index is not None

    def _recover(self, before: int | None) -> None:
        """Begin with a checkpoint, if there is one: bits are taken as they are, keys come after (`_load_keys`)."""
        snapshots = self._around.snapshots
        if snapshots is None:
            return
        for find in snapshots.find(self._records()):
            try:
                found, records = find(), self._records()  # some may have gone while it was fetched
                if found is not None and self._is_usable(found, records, before):
                    self._begin_with(found, records)
                    return
            except MerlotError as error:
                snapshots.note_unread(error)

    def _is_usable(self, found: Found, records: Records, before: int | None) -> bool:
        if not records.keys() >= {found.sequence, *found.segments}:
            return False
        is_before = self._recovered_from() <= found.sequence and (before is None or found.sequence < before)
        fits = all(one.num_docs == records[sequence].total_docs for sequence, one in found.segments.items())
        is_same = found.column == self._around.rules_of(records[found.sequence]).compared_by
        return is_before and fits and is_same

    def _begin_with(self, found: Found, records: Records) -> None:
        end = records[found.sequence]
        numbers = {sequence: self._new_number() for sequence in sorted(found.segments)}
        checkpoint = Checkpoint(
            end_offset=end.end_offset or 0,
            watermark=found.mark,
            segments={numbers[sequence]: snapshot for sequence, snapshot in found.segments.items()},
        )
        self._index = PartitionUpserts.recovered(self._around.rules_of(end), checkpoint, self._previous_rows)
        self._note_settings(end)
        self._numbers, self._unloaded, self._begun_with = numbers, sorted(numbers), found.sequence
        for sequence in numbers:
            self.files.keys[sequence] = records[sequence].key_text
            self._num_docs[sequence] = records[sequence].total_docs
            self._decided_by[sequence] = recovery.decided_by(records, sequence, self._recovered_from())
        _LOG.info("index begins with a checkpoint %s segment=%s", self._where, end.name)

    def _load_keys(self) -> bool:
        """Enter the keys of a checkpoint's segments that are alive; False if a segment is not here."""
        records = self._records()
        while self._unloaded:
            record = records.get(self._unloaded[0])
            if record is not None and record.key_text != self.files.keys[record.sequence]:
                self._forget()  # its bits are of another file: what is stored is replayed
                self.waits_for = record.key_text
                return False
            if record is not None:
                with self._around.borrow(record.key_text) as segment:
                    if segment is None:
                        self.waits_for = record.key_text
                        return False
                    self._load(record.sequence, segment)
            self._unloaded.pop(0)
        return True

    def _load(self, sequence: int, segment: Segment) -> None:
        index, number = self._index, self._numbers[sequence]
        assert index is not None
        compared = index.rules.comparisons[0]
        bounds = segment.bounds(compared.name) if compared.is_plain else None
        if bounds is not None and not index.may_load(bounds[1]):
            return
        kept = index.cut.segments[number]
        docs = np.concatenate([kept.live.docs(), kept.tombstones.docs()])
        for first in range(0, len(docs), REPLAY_DOCS):
            some = docs[first : first + REPLAY_DOCS]
            if index.may_expire:
                some = some[index.alive(_rows_at(segment, index.rules.expiring, some))]
            index.load(_rows_at(segment, index.rules.fields, some), number, some)

    def _capture(self, sequence: int, num_docs: int) -> None:
        """Have it kept how the partition is at the end of a segment."""
        if self._around.snapshots is None or self._index is None or not num_docs:
            return
        found = self._index.cut_at(self._numbers[sequence], num_docs) if sequence in self._numbers else None
        if found is None:
            return
        told = {one: docs for one, docs in self._num_docs.items() if one < sequence} | {sequence: num_docs}
        self._around.snapshots.capture(
            Captured(
                sequence=sequence,
                cut=found[0],
                mark=found[1],
                column=self._index.rules.compared_by,
                numbers={one: self._numbers[one] for one in told},
                num_docs=told,
            )
        )

    def _replay(self, record: StreamSegmentRecord, segment: Segment) -> None:
        self._follow_rules(record.sequence)
        start = self._num_docs.get(record.sequence, 0)
        if start and self.files.is_unknown(record):
            raise UnavailableError(f"segment was rewritten meanwhile {self._where} segment={record.name}")
        self.files.keys[record.sequence] = record.key_text
        assert self._index is not None
        fields = self._index.rules.fields
        for first in range(start, segment.num_docs, REPLAY_DOCS):
            docs = np.arange(first, min(first + REPLAY_DOCS, segment.num_docs))
            self._tell(record.sequence, _rows_at(segment, fields, docs), first)
        self._tell(record.sequence, pa.table({}), segment.num_docs)
        self._index.committed()
        while self._index.tidy():  # else the keys of all segments would be in memory at once
            pass

    def _tell(self, sequence: int, rows: pa.Table, first: int) -> None:
        """Rows that are stored, as docs from the first one on."""
        assert self._index is not None
        if sequence not in self._numbers:
            self._numbers[sequence] = self._new_number()
        if rows.num_rows:
            self._index.replay(rows, self._numbers[sequence], first)
            self._index.publish()
        self._num_docs[sequence] = first + rows.num_rows
        self._note_decided(sequence)

    def _note_decided(self, sequence: int) -> None:
        self._decided_by[sequence] = self._settings
        if self._num_docs[sequence] and self._changed_at is not None and sequence >= self._changed_at:
            self._changed_at = None

    def _has_followed_nobody(self) -> bool:
        """Whether settings were followed of a segment that is gone, and never had a row. Who begins anew does not know
        that there was one, and would not take for dead what was dead by it."""
        return self._changed_at is not None and self._changed_at not in self._records()

    def _follow_rules(self, sequence: int) -> None:
        """Decide by the settings of a segment from here on; they may have changed since the one before."""
        records = self._records()
        if sequence not in records:
            return
        text = recovery.decided_by(records, sequence, self._recovered_from())
        if self._index is not None and text == self._settings:
            return
        record = records[sequence].model_copy(update={"upsert": text})
        rules = self._around.rules_of(record)
        if self._index is None:
            self._index = PartitionUpserts(rules, self._previous_rows)
        else:
            _LOG.info("upserts follow new settings %s segment=%s", self._where, record.name)
            self._index.set_rules(rules)
            self._changed_at = sequence
        self._note_settings(record)

    def _note_settings(self, record: StreamSegmentRecord) -> None:
        self._settings, self._scan_s = record.upsert, self._around.scan_s_of(record)
        self._kept_in = unpin_upsert(record.upsert).snapshots_in

    def _previous_rows(self, numbers: Longs, docs: Longs, fields: Sequence[FieldSpec]) -> pa.Table:
        """What rows are merged into, by the index's numbers of their segments."""
        known, places = np.unique(numbers, return_inverse=True)
        sequence_of = {number: sequence for sequence, number in self._numbers.items()}
        sequences = np.array([sequence_of[number] for number in known.tolist()], np.int64)[places]
        records = self.files.numbered(self._records(), set(sequences.tolist()))
        return StoredRows(self._around.borrow, self._line, records).of(sequences, docs, fields)

    def _take_cut(self) -> None:
        assert self._index is not None
        self.files.take_cut(self._index.cut, self._numbers, self._num_docs)

    def _follow_files(self, index: PartitionUpserts) -> None:
        """Number docs by the files that sealed segments have now, as soon as these are here."""
        records = self._records()
        if not self.files.is_due(records):
            return
        for sequence in sorted(self._numbers):
            record = records.get(sequence)
            if record is None or record.is_open:
                continue
            self.files.note(record, self._num_docs[sequence])
            if self._line.part(sequence) is not None:
                continue  # brokers may ask by its beginning, and what answers is what was read
            try:
                renumbered = self.files.renumbered(record, self._num_docs[sequence], index, self._numbers[sequence])
            except FileGoneError:
                self._rebuild(self._line)
                return
            if renumbered is not None:
                number = self._new_number()
                if self._around.snapshots is not None:
                    self._around.snapshots.forget()
                index.replace_segments({self._numbers[sequence]: renumbered}, number, record.total_docs)
                self._numbers[sequence], self._num_docs[sequence] = number, record.total_docs
        self.files.settle(records)
        self._show()

    def _new_number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _remove_gone(self, line: Line) -> None:
        """Forget segments that are of the table no more."""
        assert self._index is not None
        records = self._records()
        last = max(records, default=-1)
        for sequence in sorted(self._numbers):
            if sequence < last and sequence not in records and line.part(sequence) is None:
                self._index.remove_segment(self._numbers.pop(sequence))
                self._num_docs.pop(sequence)
                self._decided_by.pop(sequence, None)
                self.files.keys.pop(sequence, None)

    def _rebuild(self, line: Line, shown: View | None = None) -> None:
        """The index anew, of what the line and sealed segments have. shown: what readers see meanwhile."""
        _LOG.info("index of keys is built anew %s", self._where)
        self._forget(shown)
        self.is_building = True
        with self._all_or_nothing():
            self._build(line)
            self._show()

    def _build(self, line: Line) -> None:
        if not self._add_sealed(min((part.sequence for part in line.parts), default=None)):
            raise UnavailableError(f"sealed segment is not here {self._where} segment={self.waits_for}")
        self._take_cut()
        for part in line.parts:
            self._follow_rules(part.sequence)
            if part.rows is not None:
                self._tell(part.sequence, part.rows.rows(_stored(part)), 0)
            elif not self._add_sealed(part.sequence + 1):
                raise UnavailableError(f"sealed segment is not here {self._where} segment={self.waits_for}")

    def _forget(self, shown: View | None = None) -> None:
        self._index, self.view, self._unloaded = None, shown, []
        if self._around.snapshots is not None:
            self._around.snapshots.forget()
        self._numbers, self._num_docs, self._decided_by, self._settings = {}, {}, {}, ""
        self._changed_at = None
        self.files.forget()
        self._around.on_change()

    def _show(self) -> None:
        """Let readers see what the index has."""
        assert self._index is not None
        before = self.view
        is_same = before is not None and before.numbers == self._numbers
        numbers = before.numbers if before is not None and is_same else dict(self._numbers)
        self.view = View(self._line, self._index.cut, numbers, *self.files.shown(before))
        self.is_building = False
        if not is_same:
            self._around.on_change()


def _rows_at(segment: Segment, fields: Sequence[FieldSpec], docs: Longs) -> pa.Table:
    """Columns of docs of a sealed segment."""
    chosen = docs.astype(np.uint32)
    return pa.table({field.name: taken_column(column_under(segment, field), chosen) for field in fields})


def _stored(part: Part) -> int:
    """Docs of a part that has rows."""
    assert part.rows is not None
    return part.rows.num_docs if part.num_docs is None else part.num_docs
