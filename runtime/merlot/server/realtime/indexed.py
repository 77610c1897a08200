"""The index of one partition's keys with what it was told of: which docs of which segments, decided by which settings.

Segments have a number in the index that is never used again, docs keep theirs when their segment is sealed. Whoever
tells it of rows (`upserts` of those that come, `sealed` of those that are stored) does so here, in their order. All of
it is the consuming thread's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.clock import Clock
from merlot.cluster.consuming import recovery
from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import UnavailableError
from merlot.segment.reader import Segment
from merlot.server.realtime.files import Files
from merlot.server.realtime.line import Line, Part
from merlot.server.realtime.previous import StoredRows
from merlot.server.realtime.rewritten import Records
from merlot.server.realtime.snapshots import Captured, Snapshots
from merlot.spec.schema import FieldSpec
from merlot.spec.upserting import SnapshotStore
from merlot.upsert.partial import PreviousRows
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules

_LOG = logging.getLogger(__name__)

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


class IndexedRows:
    """One partition's."""

    def __init__(self, around: Surroundings, records: Callable[[], Records]) -> None:
        self.around = around
        self._records = records
        self.index: PartitionUpserts | None = None
        self.numbers: dict[int, int] = {}
        """What the index calls segments, by sequence."""
        self.num_docs: dict[int, int] = {}
        """Docs of each segment that the index was told of."""
        self.decided_by: dict[int, str] = {}
        """Settings that decided the newest of them."""
        self.files = Files(around.where, around.borrow, around.clock)
        """The files of sealed segments, by which their docs are numbered."""
        self.line = Line()
        """The parts whose rows are here."""
        self.settings = ""
        """What rows that come now are decided by, as it was pinned."""
        self.scan_s = 0.0
        self.kept_in: SnapshotStore | None = None
        """Where these settings have snapshots kept."""
        self._changed_at: int | None = None
        """Segment whose settings are others than those before it, while it has no row: it may come to nothing."""
        self._next_number = 0
        self._point: tuple[Records, int] = ({}, -1)

    @property
    def records(self) -> Records:
        """The partition's segments by sequence, as shared state has them."""
        return self._records()

    def forget(self) -> None:
        """The index is given up."""
        self.index = None
        if self.around.snapshots is not None:
            self.around.snapshots.forget()
        self.numbers, self.num_docs, self.decided_by, self.settings = {}, {}, {}, ""
        self._changed_at = None
        self.files.forget()

    # Rows.

    def tell(self, sequence: int, rows: pa.Table, first: int) -> None:
        """Rows that are stored, as docs from the first one on."""
        assert self.index is not None
        if sequence not in self.numbers:
            self.numbers[sequence] = self.new_number()
        if rows.num_rows:
            self.index.replay(rows, self.numbers[sequence], first)
            self.index.publish()
        self.num_docs[sequence] = first + rows.num_rows
        self.note_decided(sequence)

    def note_decided(self, sequence: int) -> None:
        """The newest docs of a segment were decided by the current settings."""
        self.decided_by[sequence] = self.settings
        if self.num_docs[sequence] and self._changed_at is not None and sequence >= self._changed_at:
            self._changed_at = None

    def is_told(self, previous: Part, num_docs: int) -> bool:
        """Whether the index has so many docs behind the end of a part."""
        docs = previous.num_docs
        return docs is not None and self.num_docs.get(previous.sequence, 0) == docs + num_docs

    def has_decided(self, part: Part) -> bool:
        """Whether the index was told of the part as a sealed segment; raises UnavailableError if that numbers its docs
        by another file, or if rows of it are not here yet."""
        if part.sequence not in self.numbers:
            return False
        key = self.files.keys.get(part.sequence)
        is_same = part.key == key if part.rows is None else stored(part) == self.num_docs[part.sequence]
        if not is_same:
            where = self.around.where
            raise UnavailableError(f"segment has other docs than its checkpoint as yet {where} segment={part.name}")
        return True

    def move_tail(self, previous: Part, part: Part) -> None:
        """The docs behind the end of a part are another's now."""
        assert self.index is not None
        assert previous.num_docs is not None
        number = self.numbers[part.sequence] = self.new_number()
        self.index.move_tail(self.numbers[previous.sequence], previous.num_docs, number)
        self.index.committed()
        self.num_docs[part.sequence] = self.num_docs[previous.sequence] - previous.num_docs
        self.note_decided(part.sequence)
        self.num_docs[previous.sequence] = previous.num_docs

    def renumber(self, record: StreamSegmentRecord, docs: Mapping[int, Longs]) -> None:
        """A sealed segment has another file, in which each doc of some segments has its new number, or -1."""
        assert self.index is not None
        sequence, number = record.sequence, self.new_number()
        if self.around.snapshots is not None:
            self.around.snapshots.forget()
        sources = {self.numbers.pop(one): some for one, some in docs.items()}
        self.index.replace_segments(sources, number, record.total_docs)
        for one in docs.keys() - {sequence}:
            self.num_docs.pop(one)
            self.decided_by.pop(one, None)
        self.numbers[sequence], self.num_docs[sequence] = number, record.total_docs

    def remove_gone(self) -> None:
        """Forget segments that are of the table no more, once their files are not here either: an answer that lacks one
        of them lacks the whole partition."""
        assert self.index is not None
        records = self.records
        last = max(records, default=-1)
        kept = self.files.awaited(records) | records.keys()
        gone = [one for one in self.numbers if one < last and one not in kept and self.line.part(one) is None]
        for sequence in sorted(gone):
            if self.files.may_be_asked(sequence):
                continue
            self.index.remove_segment(self.numbers.pop(sequence))
            self.num_docs.pop(sequence)
            self.decided_by.pop(sequence, None)
            self.files.keys.pop(sequence, None)

    def new_number(self) -> int:
        """A number that no segment had before."""
        self._next_number += 1
        return self._next_number

    def _previous_rows(self, numbers: Longs, docs: Longs, fields: Sequence[FieldSpec]) -> pa.Table:
        """What rows are merged into, by the index's numbers of their segments."""
        known, places = np.unique(numbers, return_inverse=True)
        sequence_of = {number: sequence for sequence, number in self.numbers.items()}
        sequences = np.array([sequence_of[number] for number in known.tolist()], np.int64)[places]
        keys = self.files.numbered(self.records, set(sequences.tolist()))
        return StoredRows(self.around.borrow, self.line, keys).of(sequences, docs, fields)

    # Settings.

    def begin(self, record: StreamSegmentRecord, make: Callable[[Rules, PreviousRows], PartitionUpserts]) -> None:
        """An index that decides by a record's settings."""
        self.index = make(self.around.rules_of(record), self._previous_rows)
        self._note_settings(record)

    def follow_rules(self, sequence: int) -> None:
        """Decide by the settings of a segment from here on; they may have changed since the one before."""
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
        rules = self.around.rules_of(record)
        if rules.identity == self.index.rules.identity:
            _LOG.info("upserts follow new settings %s segment=%s", self.around.where, record.name)
            self.index.set_rules(rules)
        else:
            # Whoever applied them should have been refused. Without an index the whole partition would be out.
            text = "new settings of upserts would need other keys, those before go on %s segment=%s"
            _LOG.error(text, self.around.where, record.name)
        self._changed_at = sequence
        self._note_settings(record)

    def recovered_from(self) -> int:
        """See `recovery.point_of`."""
        records = self.records
        if self._point[0] is not records:
            self._point = (records, recovery.point_of(records))
        return self._point[1]

    def has_followed_nobody(self) -> bool:
        """Whether settings were followed of a segment that is gone, and never had a row. Who begins anew does not know
        that there was one, and would not take for dead what was dead by it."""
        return self._changed_at is not None and self._changed_at not in self.records

    def is_to_recover(self) -> bool:
        """Whether stored rows have to be decided anew, with all keys: what is shown until then is as it was meant."""
        records, point = self.records, self.recovered_from()
        earlier = (one for one in self.num_docs if one < point and one in records and self.num_docs[one])
        return any(recovery.decided_by(records, one, point) != self.decided_by.get(one) for one in earlier)

    def _note_settings(self, record: StreamSegmentRecord) -> None:
        self.settings, self.scan_s = record.upsert, self.around.scan_s_of(record)
        self.kept_in = unpin_upsert(record.upsert).snapshots_in

    # What becomes of parts.

    def undone(self, before: Line, after: Line) -> list[int]:
        """Segments with rows that the index was told of and that are in no part of the line any more, nor in a sealed
        segment, or that it decided by other settings than their segment turned out to have."""
        return [one for one in self.num_docs if self._is_lost(one, before, after)]

    def _is_lost(self, sequence: int, before: Line, after: Line) -> bool:
        told, part, record = self.num_docs[sequence], after.part(sequence), self.records.get(sequence)
        if told and record is not None and self._is_decided_otherwise(sequence, record):
            return True
        if part is not None and part.rows is not None:
            return told > stored(part) + self._carried(after.part(sequence + 1))
        if record is not None and not record.is_open:
            if told and self.files.is_unknown(record):
                return True
            return told > record.total_docs and self.files.is_numbered_by(record)
        old = before.part(sequence)
        return told > 0 and part is None and old is not None and old.rows is not None

    def _is_decided_otherwise(self, sequence: int, record: StreamSegmentRecord) -> bool:
        return sequence >= self.recovered_from() and record.upsert != self.decided_by[sequence]

    def _carried(self, tail: Part | None) -> int:
        """Docs that were told as those of the part before."""
        is_new = tail is not None and tail.sequence not in self.num_docs
        return stored(tail) if is_new and tail is not None and tail.rows is not None else 0

    # Cuts.

    def take_cut(self) -> None:
        """Note what is valid as a segment begins."""
        assert self.index is not None
        self.files.take_cut(self.index.cut, self.numbers, self.num_docs)

    def capture(self, sequence: int, num_docs: int) -> None:
        """Have it kept how the partition is at the end of a segment."""
        if self.around.snapshots is None or self.index is None or not num_docs:
            return
        found = self.index.cut_at(self.numbers[sequence], num_docs) if sequence in self.numbers else None
        if found is None:
            return
        told = {one: docs for one, docs in self.num_docs.items() if one < sequence} | {sequence: num_docs}
        self.around.snapshots.capture(
            Captured(
                sequence=sequence,
                cut=found[0],
                mark=found[1],
                column=self.index.rules.compared_by,
                numbers={one: self.numbers[one] for one in told},
                num_docs=told,
                keys=dict(self.files.keys),
            )
        )


def stored(part: Part) -> int:
    """Docs of a part that has rows."""
    assert part.rows is not None
    return part.rows.num_docs if part.num_docs is None else part.num_docs
