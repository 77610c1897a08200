"""The index of one partition's keys, with the number of docs that it has of each segment and the settings that decided
them.

Each segment has a number in the index that is never used again; docs keep theirs when their segment is sealed.
`upserts` enters rows as they come and `sealed` enters rows that are stored, both through this module and in the order
of the stream. Everything here belongs to the consuming thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.clock import Clock
from merlot.cluster.consuming import recovery
from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import UnavailableError
from merlot.segment.reader import Segment
from merlot.server.realtime.files import NumberingFiles
from merlot.server.realtime.partition_log import LogPart, PartitionLog
from merlot.server.realtime.previous import StoredRows
from merlot.server.realtime.rewritten import Records
from merlot.server.realtime.snapshots import CapturedState, Snapshots
from merlot.server.tuning import StreamTuning
from merlot.spec.schema import FieldSpec
from merlot.spec.upserting import SnapshotStore
from merlot.upsert.partial import PreviousRows
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules

_LOG = logging.getLogger(__name__)

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDeps:
    """Dependencies that the partitions of an upsert table share."""

    where: str
    """Table and partition, for logs and errors."""
    rules_of: Callable[[StreamSegmentRecord], Rules]
    """Return the rules that were pinned where a segment began."""
    borrow: Callable[[str], AbstractContextManager[Segment | None]]
    """Hold a sealed segment, `name@crc`, while it is read; None if it is not loaded. Blocks."""
    scan_s_of: Callable[[StreamSegmentRecord], float]
    """Return the seconds in which a scan for expired keys comes through all keys, where the settings say so."""
    misplaced: Callable[[pa.Table], int]
    """Count the rows of a batch that belong to another partition, by what the table declares."""
    clock: Clock
    on_change: Callable[[], None]
    """Called when segments become available to queries, or stop being so; from any thread."""
    snapshots: Snapshots | None = None
    """Checkpoints of the partition; None if none are written, whatever the settings say."""
    tuning: StreamTuning = field(default_factory=StreamTuning)


class IndexedRows:
    """Index of one partition, with its bookkeeping."""

    def __init__(self, deps: IndexDeps, records: Callable[[], Records]) -> None:
        self.deps = deps
        self._records = records
        self.index: PartitionUpserts | None = None
        self.numbers: dict[int, int] = {}
        """Numbers of segments in the index, by sequence."""
        self.num_docs: dict[int, int] = {}
        """Number of docs of each segment that the index has, by sequence."""
        self.decided_by: dict[int, str] = {}
        """Settings that decided the newest docs of each segment, by sequence."""
        self.files = NumberingFiles(deps.where, deps.borrow, deps.clock)
        """Files of sealed segments by which their docs are numbered."""
        self.log = PartitionLog()
        """Log whose rows are here."""
        self.settings = ""
        """Settings that decide rows that come now, as they were pinned."""
        self.scan_s = 0.0
        self.kept_in: SnapshotStore | None = None
        """Store of snapshots by these settings; None if they want no snapshots."""
        self._changed_at: int | None = None
        """Sequence of a segment whose settings differ from the previous segment's, while it has no row: it may be given
        up."""
        self._next_number = 0
        self._point: tuple[Records, int] = ({}, -1)

    @property
    def records(self) -> Records:
        """Segments of the partition by sequence, as shared state has them."""
        return self._records()

    def forget(self) -> None:
        """Give the index up."""
        self.index = None
        if self.deps.snapshots is not None:
            self.deps.snapshots.forget()
        self.numbers, self.num_docs, self.decided_by, self.settings = {}, {}, {}, ""
        self._changed_at = None
        self.files.forget()

    # Rows.

    def tell(self, sequence: int, rows: pa.Table, first: int) -> None:
        """Enter stored rows into the index, as docs from `first` on."""
        assert self.index is not None
        if sequence not in self.numbers:
            self.numbers[sequence] = self.new_number()
        if rows.num_rows:
            self.index.replay(rows, self.numbers[sequence], first)
            self.index.publish()
        self.num_docs[sequence] = first + rows.num_rows
        self.note_decided(sequence)

    def note_decided(self, sequence: int) -> None:
        """Note that the current settings decided the newest docs of a segment."""
        self.decided_by[sequence] = self.settings
        if self.num_docs[sequence] and self._changed_at is not None and sequence >= self._changed_at:
            self._changed_at = None

    def is_told(self, previous: LogPart, num_docs: int) -> bool:
        """Return True if the index has `num_docs` docs behind the end of a part."""
        docs = previous.num_docs
        return docs is not None and self.num_docs.get(previous.sequence, 0) == docs + num_docs

    def has_decided(self, part: LogPart) -> bool:
        """Return True if the index has the part as a sealed segment. Raises UnavailableError if its docs are
        numbered by another file, or if rows of it are not here yet."""
        if part.sequence not in self.numbers:
            return False
        key = self.files.keys.get(part.sequence)
        is_same = part.key == key if part.rows is None else stored(part) == self.num_docs[part.sequence]
        if not is_same:
            where = self.deps.where
            raise UnavailableError(f"segment has other docs than its checkpoint as yet {where} segment={part.name}")
        return True

    def move_tail(self, previous: LogPart, part: LogPart) -> None:
        """Move the docs behind the end of a part to the next part."""
        assert self.index is not None
        assert previous.num_docs is not None
        number = self.numbers[part.sequence] = self.new_number()
        self.index.move_tail(self.numbers[previous.sequence], previous.num_docs, number)
        self.index.committed()
        self.num_docs[part.sequence] = self.num_docs[previous.sequence] - previous.num_docs
        self.note_decided(part.sequence)
        self.num_docs[previous.sequence] = previous.num_docs

    def renumber(self, record: StreamSegmentRecord, docs: Mapping[int, Longs]) -> None:
        """Take over the new numbers of docs in a sealed segment's new file; -1 drops a doc."""
        assert self.index is not None
        sequence, number = record.sequence, self.new_number()
        if self.deps.snapshots is not None:
            self.deps.snapshots.forget()
        sources = {self.numbers.pop(source): new_docs for source, new_docs in docs.items()}
        self.index.replace_segments(sources, number, record.total_docs)
        for source in docs.keys() - {sequence}:
            self.num_docs.pop(source)
            self.decided_by.pop(source, None)
        self.numbers[sequence], self.num_docs[sequence] = number, record.total_docs

    def remove_gone(self) -> None:
        """Forget segments that left the table, once their files are gone here too: an answer that lacks one of them
        lacks the whole partition."""
        assert self.index is not None
        records = self.records
        last = max(records, default=-1)
        present = self.files.awaited(records) | records.keys()
        gone = [
            sequence
            for sequence in self.numbers
            if sequence < last and sequence not in present and self.log.part(sequence) is None
        ]
        for sequence in sorted(gone):
            if self.files.may_be_asked(sequence):
                continue
            self.index.remove_segment(self.numbers.pop(sequence))
            self.num_docs.pop(sequence)
            self.decided_by.pop(sequence, None)
            self.files.keys.pop(sequence, None)

    def new_number(self) -> int:
        """Return a number that no segment had before."""
        self._next_number += 1
        return self._next_number

    def _previous_rows(self, numbers: Longs, docs: Longs, fields: Sequence[FieldSpec]) -> pa.Table:
        """Return the rows that others are merged into, by the index's numbers of their segments."""
        distinct, positions = np.unique(numbers, return_inverse=True)
        sequence_of = {number: sequence for sequence, number in self.numbers.items()}
        sequences = np.array([sequence_of[number] for number in distinct.tolist()], np.int64)[positions]
        keys = self.files.numbered(self.records, set(sequences.tolist()))
        return StoredRows(self.deps.borrow, self.log, keys).of(sequences, docs, fields)

    # Settings.

    def begin(self, record: StreamSegmentRecord, make: Callable[[Rules, PreviousRows], PartitionUpserts]) -> None:
        """Begin an index that decides by a record's settings."""
        self.index = make(self.deps.rules_of(record), self._previous_rows)
        self._note_settings(record)

    def follow_rules(self, sequence: int) -> None:
        """Decide by the settings of a segment from here on, in case they have changed since the segment before."""
        records = self.records
        if sequence not in records:
            return
        text = recovery.decided_by(records, sequence, self.recovered_from())
        if self.index is not None and text == self.settings:
            return
        record = records[sequence].model_copy(update={"upsert": text})
        if self.index is None:
            self.begin(record, PartitionUpserts)
            return
        rules = self.deps.rules_of(record)
        if rules.identity == self.index.rules.identity:
            _LOG.info("upserts follow new settings %s segment=%s", self.deps.where, record.name)
            self.index.set_rules(rules)
        else:
            # Such a change should have been refused. Without an index the whole partition could not be queried.
            text = "new settings of upserts would need other keys, those before go on %s segment=%s"
            _LOG.error(text, self.deps.where, record.name)
        self._changed_at = sequence
        self._note_settings(record)

    def recovered_from(self) -> int:
        """Return the point of recovery; see `recovery.point_of`."""
        records = self.records
        if self._point[0] is not records:
            self._point = (records, recovery.point_of(records))
        return self._point[1]

    def has_followed_nobody(self) -> bool:
        """Return True if the index followed settings of a segment that is gone and never had a row. A replica that
        starts anew does not know of that segment, and would not regard as dead what was dead by its settings."""
        return self._changed_at is not None and self._changed_at not in self.records

    def is_to_recover(self) -> bool:
        """Return True if stored rows have to be decided anew, with all keys. Until then, readers see them as the former
        settings decided."""
        records, point = self.records, self.recovered_from()
        return any(
            recovery.decided_by(records, sequence, point) != self.decided_by.get(sequence)
            for sequence, num_docs in self.num_docs.items()
            if num_docs and sequence < point and sequence in records
        )

    def _note_settings(self, record: StreamSegmentRecord) -> None:
        self.settings, self.scan_s = record.upsert, self.deps.scan_s_of(record)
        self.kept_in = unpin_upsert(record.upsert).snapshots_in

    # Changes of parts.

    def undone(self, before: PartitionLog, after: PartitionLog) -> list[int]:
        """Return the segments whose rows the index has to forget: it has rows that are in no part of the log
        and in no sealed segment any more, or decided them by other settings than their segment turned out to have."""
        return [sequence for sequence in self.num_docs if self._is_lost(sequence, before, after)]

    def _is_lost(self, sequence: int, before: PartitionLog, after: PartitionLog) -> bool:
        num_docs, part, record = self.num_docs[sequence], after.part(sequence), self.records.get(sequence)
        if num_docs and record is not None and self._is_decided_otherwise(sequence, record):
            return True
        if part is not None and part.rows is not None:
            return num_docs > stored(part) + self._carried(after.part(sequence + 1))
        if record is not None and not record.is_open:
            if num_docs and self.files.is_unknown(record):
                return True
            return num_docs > record.total_docs and self.files.is_numbered_by(record)
        old = before.part(sequence)
        return num_docs > 0 and part is None and old is not None and old.rows is not None

    def _is_decided_otherwise(self, sequence: int, record: StreamSegmentRecord) -> bool:
        return sequence >= self.recovered_from() and record.upsert != self.decided_by[sequence]

    def _carried(self, tail: LogPart | None) -> int:
        """Count the docs of a new tail, which the index has as docs of the part before it."""
        is_new = tail is not None and tail.sequence not in self.num_docs
        return stored(tail) if is_new and tail is not None and tail.rows is not None else 0

    # Valid docs.

    def take_cut(self) -> None:
        """Note the valid docs as a segment begins."""
        assert self.index is not None
        self.files.take_cut(self.index.cut, self.numbers, self.num_docs)

    def capture(self, sequence: int, num_docs: int) -> None:
        """Capture the state of the partition at the end of a segment, for its checkpoint."""
        if self.deps.snapshots is None or self.index is None or not num_docs:
            return
        state = self.index.cut_at(self.numbers[sequence], num_docs) if sequence in self.numbers else None
        if state is None:
            return
        captured = {earlier: docs for earlier, docs in self.num_docs.items() if earlier < sequence} | {
            sequence: num_docs
        }
        self.deps.snapshots.capture(
            CapturedState(
                sequence=sequence,
                cut=state[0],
                mark=state[1],
                column=self.index.rules.compared_by,
                numbers={included: self.numbers[included] for included in captured},
                num_docs=captured,
                keys=dict(self.files.keys),
            )
        )


def stored(part: LogPart) -> int:
    """Count the docs of a part that has rows."""
    assert part.rows is not None
    return part.rows.num_docs if part.num_docs is None else part.num_docs
