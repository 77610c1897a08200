"""Tells the index of a partition of its sealed segments, in the order of the stream: by a checkpoint, if there is one
that fits, and by reading what is stored.

A checkpoint's bits are taken as they are, and the keys of the docs that are alive are entered after; segments behind it
are read whole, block by block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.cluster.consuming import checkpoints, recovery
from merlot.cluster.consuming.merged import sequence_of, taken
from merlot.cluster.consuming.transactions import COMPACTED
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import MerlotError, UnavailableError
from merlot.segment import lost_pages
from merlot.segment.reader import Segment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.server.realtime.indexed import IndexedRows
from merlot.server.realtime.line import Part
from merlot.server.realtime.rewritten import Records
from merlot.server.realtime.snapshots import Found
from merlot.spec.schema import FieldSpec
from merlot.upsert.checkpoint import Checkpoint
from merlot.upsert.partition import PartitionUpserts

_LOG = logging.getLogger(__name__)

REPLAY_DOCS: Final = 1 << 20
"""Docs of a sealed segment that are read at a time."""
Longs = NDArray[np.int64]


class SealedRows:
    """One partition's, for its index; the consuming thread's, but for `waits_for`."""

    def __init__(self, rows: IndexedRows, give_up: Callable[[], None]) -> None:
        self.waits_for = ""
        """Key of the sealed segment without which the index cannot be built; any thread."""
        self._rows = rows
        self._around = rows.around
        self._give_up = give_up
        self._unloaded: list[int] = []
        """Segments of a checkpoint whose keys are not in the index yet."""
        self._begun_with = -1
        """The last of them, until they are."""

    @property
    def are_keys_loaded(self) -> bool:
        """Whether the index has the keys of all bits it was begun with."""
        return not self._unloaded

    def forget(self) -> None:
        """The index is given up."""
        self._unloaded = []

    def add(self, before: int | None) -> bool:
        """Tell the index of every sealed doc before a segment that it was not told of; False if one is not here."""
        rows = self._rows
        if rows.index is None:
            self._recover(before)
        if not self._load_keys():
            return False
        last = rows.records.get(self._begun_with)
        merged = _merged_before(rows.records, before)
        for sequence, record in sorted(rows.records.items()):
            if record.is_open or sequence in merged or (before is not None and sequence >= before):
                continue
            if not rows.files.is_numbered_by(record):
                continue  # its rows are known as another file has them
            if rows.num_docs.get(sequence, -1) >= record.total_docs:
                continue
            with self._around.borrow(record.key_text) as segment:
                if segment is None:
                    self.waits_for = record.key_text
                    return False
                self._replay(record, segment)
                last = record
        self.waits_for = ""
        if last is not None:
            rows.capture(last.sequence, last.total_docs)
        self._begun_with = -1
        if rows.index is None and (first := min(rows.records, default=None)) is not None:
            rows.follow_rules(first)
        return rows.index is not None

    def has(self, part: Part) -> bool:
        """Whether the file of a part's rows is here."""
        record = self._rows.records.get(part.sequence)
        if record is None or record.is_open or COMPACTED in record.custom_map or part.num_docs != record.total_docs:
            return False
        with self._around.borrow(record.key_text) as segment:
            return segment is not None

    def require(self, before: int | None) -> None:
        """As `add`; raises UnavailableError if a segment is not here."""
        if not self.add(before):
            raise UnavailableError(f"sealed segment is not here {self._around.where} segment={self.waits_for}")

    def _recover(self, before: int | None) -> None:
        """Begin with a checkpoint, if there is one: bits are taken as they are, keys come after (`_load_keys`).

        Raises UnavailableError if there is none, and rows that decided others have been taken out of segments."""
        snapshots = self._around.snapshots
        for find in () if snapshots is None else snapshots.find(self._rows.records):
            try:
                found, records = find(), self._rows.records  # some may have gone while it was fetched
                if found is not None and self._is_usable(found, records, before):
                    self._begin_with(found, records)
                    return
            except MerlotError as error:
                assert snapshots is not None
                snapshots.note_unread(error)
        if (least := checkpoints.needed(self._rows.records)) is not None:
            text = "rows that decided others were taken out of segments, and no checkpoint after that can be read"
            where = self._around.where
            raise UnavailableError(f"{text}: a backfill decides all rows that are left {where} sequence={least}")

    def _is_usable(self, found: Found, records: Records, before: int | None) -> bool:
        if not records.keys() >= {found.sequence, *found.segments}:
            return False
        least = checkpoints.needed(records)
        is_before = self._rows.recovered_from() <= found.sequence and (
            found.sequence >= least if least is not None else before is None or found.sequence < before
        )
        fits = all(one.num_docs == records[sequence].total_docs for sequence, one in found.segments.items())
        is_same = found.column == self._around.rules_of(records[found.sequence]).compared_by
        return is_before and fits and is_same

    def _begin_with(self, found: Found, records: Records) -> None:
        rows, end = self._rows, records[found.sequence]
        numbers = {sequence: rows.new_number() for sequence in sorted(found.segments)}
        checkpoint = Checkpoint(
            end_offset=end.end_offset or 0,
            watermark=found.mark,
            segments={numbers[sequence]: snapshot for sequence, snapshot in found.segments.items()},
        )
        rows.begin(end, lambda rules, previous: PartitionUpserts.recovered(rules, checkpoint, previous))
        rows.numbers, self._unloaded, self._begun_with = numbers, sorted(numbers), found.sequence
        for sequence in numbers:
            rows.files.keys[sequence] = records[sequence].key_text
            rows.num_docs[sequence] = records[sequence].total_docs
            rows.decided_by[sequence] = recovery.decided_by(records, sequence, rows.recovered_from())
        _LOG.info("index begins with a checkpoint %s segment=%s", self._around.where, end.name)

    def _load_keys(self) -> bool:
        """Enter the keys of a checkpoint's segments that are alive; False if a segment is not here."""
        records = self._rows.records
        while self._unloaded:
            record = records.get(self._unloaded[0])
            if record is not None and record.key_text != self._rows.files.keys[record.sequence]:
                self._give_up()  # its bits are of another file: what is stored is replayed
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
        index, number = self._rows.index, self._rows.numbers[sequence]
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

    def _replay(self, record: StreamSegmentRecord, segment: Segment) -> None:
        rows = self._rows
        rows.follow_rules(record.sequence)
        start = rows.num_docs.get(record.sequence, 0)
        if start and rows.files.is_unknown(record):
            raise UnavailableError(f"segment was rewritten meanwhile {self._around.where} segment={record.name}")
        rows.files.keys[record.sequence] = record.key_text
        index = rows.index
        assert index is not None
        for first in range(start, segment.num_docs, REPLAY_DOCS):
            docs = np.arange(first, min(first + REPLAY_DOCS, segment.num_docs))
            rows.tell(record.sequence, _rows_at(segment, index.rules.fields, docs), first)
        rows.tell(record.sequence, pa.table({}), segment.num_docs)
        index.committed()
        while index.tidy():  # else the keys of all segments would be in memory at once
            pass


def _merged_before(records: Records, before: int | None) -> set[int]:
    """Segments whose rows are read with those of another one, before the same place."""
    found = set()
    for name, into in taken(records.values()).items():
        if before is None or into.sequence < before:
            found.add(sequence_of(f"{name}@0"))
    return found


def _rows_at(segment: Segment, fields: tuple[FieldSpec, ...], docs: Longs) -> pa.Table:
    """Columns of docs of a sealed segment; raise CorruptionError if they could not be read."""
    chosen = docs.astype(np.uint32)
    with lost_pages.watched("index of keys"):
        return pa.table({field.name: taken_column(column_under(segment, field), chosen) for field in fields})
